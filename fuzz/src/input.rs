//! How the bytes of a fuzzer become choices: some from the front, the rest is what is read.

use fairlane_wire::dialect::Endpoint;

/// Bytes that are used up from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte; 0 when none is left.
    pub(crate) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// One of `count` things.
    pub(crate) fn pick(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// A number of any size, written in two bytes: a mantissa and how far it is shifted.
    pub(crate) fn number(&mut self) -> u64 {
        let mantissa = u64::from(self.byte());
        mantissa << (self.byte() % 57)
    }

    /// Up to eight places at which `rest` will be cut, each taken from two bytes; call it last.
    pub(crate) fn cuts(&mut self) -> Vec<usize> {
        let count = self.pick(9);
        let places: Vec<usize> =
            (0..count).map(|_| usize::from(self.byte()) << 8 | usize::from(self.byte())).collect();
        let length = self.0.len() + 1;
        let mut cuts: Vec<usize> = places.into_iter().map(|place| place % length).collect();
        cuts.sort_unstable();
        cuts
    }

    /// Everything that is left.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// The stretches of `bytes` between the cuts; some may be empty.
pub(crate) fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let ends = cuts.iter().copied().chain([bytes.len()]);
    let starts = [0].into_iter().chain(cuts.iter().copied());
    starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect()
}

/// Everything that an answer can be of.
pub(crate) const ENDPOINTS: [Endpoint; 7] = [
    Endpoint::ChatCompletions,
    Endpoint::Messages,
    Endpoint::Responses,
    Endpoint::Completions,
    Endpoint::Embeddings,
    Endpoint::CountTokens,
    Endpoint::Models,
];
