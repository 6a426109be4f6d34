//! What a backend says a request used, brought to one meaning whatever the dialect.

pub use fairlane_core::gate::UsageSource;

use crate::dialect::Dialect;

/// No count is taken for more than this: two of them in micro-tokens stay below 2^53, which is exact in a double (Redis Lua).
pub const TOKENS_MAX: u64 = 4_000_000_000;

/// Tokens of one request. `None` means the backend did not say and it could not be counted either; it never means zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All prompt tokens, those read from or written to a cache included.
    pub input: Option<u64>,
    /// Prompt tokens read from a cache: a part of `input`, never more.
    pub cached: Option<u64>,
    /// Prompt tokens written to a cache: a part of `input`, never more.
    pub cache_write: Option<u64>,
    /// Generated tokens, reasoning included.
    pub output: Option<u64>,
}

/// The members of a usage object as they were written. A field that is not a whole number ≥ 0 is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawUsage {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) total: Option<u64>,
    pub(crate) cache_read: Option<u64>,
    pub(crate) cache_write: Option<u64>,
}

impl RawUsage {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes every field that `later` has: running figures are cumulative, so the last one wins.
    pub(crate) fn take(&mut self, later: &Self) {
        self.input = later.input.or(self.input);
        self.output = later.output.or(self.output);
        self.total = later.total.or(self.total);
        self.cache_read = later.cache_read.or(self.cache_read);
        self.cache_write = later.cache_write.or(self.cache_write);
    }

    /// Output, also where only input and total were given.
    pub(crate) fn output(&self) -> Option<u64> {
        self.output.or_else(|| Some(self.total?.saturating_sub(self.input?)))
    }

    /// The input side in the one meaning of [`Usage`]; `output` is left empty.
    pub(crate) fn input_side(&self, dialect: Dialect) -> Usage {
        let written = self.input.or_else(|| {
            let total = self.total?;
            Some(total.saturating_sub(self.output.unwrap_or(0)))
        });
        let cache_read = self.cache_read.unwrap_or(0);
        let cache_write = self.cache_write.unwrap_or(0);
        let input = match dialect {
            // `prompt_tokens` holds the cached ones.
            Dialect::OpenAi => written,
            // `input_tokens` is only what follows the last cache breakpoint.
            Dialect::Anthropic => written
                .or(self.cache_read)
                .or(self.cache_write)
                .map(|_| written.unwrap_or(0).saturating_add(cache_read + cache_write)),
        };
        let input = input.map(|tokens| tokens.min(TOKENS_MAX));
        let part = |tokens: Option<u64>| Some(tokens?.min(input?));
        Usage { input, cached: part(self.cache_read), cache_write: part(self.cache_write), output: None }
    }
}

/// Reads a JSON number as a count: digits only, saturating at [`TOKENS_MAX`]. Negative, fractional and exponent forms are `None`.
pub(crate) fn parse_count(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count =
        text.iter().fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(count.min(TOKENS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_digits_only_and_saturates() {
        assert_eq!(parse_count(b"0"), Some(0));
        assert_eq!(parse_count(b"251"), Some(251));
        assert_eq!(parse_count(&[b'9'; 64]), Some(TOKENS_MAX));
        for bad in [&b""[..], b"-1", b"1.5", b"1e3", b"null", b"true", b"+1"] {
            assert_eq!(parse_count(bad), None);
        }
    }

    #[test]
    fn a21_cached_is_a_part_of_the_input_in_both_dialects() {
        let raw = RawUsage { input: Some(10_000), cache_read: Some(8_000), ..RawUsage::default() };
        let open = raw.input_side(Dialect::OpenAi);
        assert_eq!((open.input, open.cached), (Some(10_000), Some(8_000)));
        let anthropic = raw.input_side(Dialect::Anthropic);
        assert_eq!((anthropic.input, anthropic.cached), (Some(18_000), Some(8_000)));
    }

    #[test]
    fn a21_more_cached_than_input_is_cut_to_the_input() {
        let raw = RawUsage {
            input: Some(10),
            cache_read: Some(50),
            cache_write: Some(TOKENS_MAX),
            ..RawUsage::default()
        };
        let usage = raw.input_side(Dialect::OpenAi);
        assert_eq!((usage.input, usage.cached, usage.cache_write), (Some(10), Some(10), Some(10)));
        let sum = raw.input_side(Dialect::Anthropic);
        assert_eq!(sum.input, Some(TOKENS_MAX));
    }

    #[test]
    fn a_total_fills_the_side_that_is_missing() {
        let raw = RawUsage { input: Some(9), total: Some(13), ..RawUsage::default() };
        assert_eq!(raw.output(), Some(4));
        let embeddings = RawUsage { total: Some(900), ..RawUsage::default() };
        let usage = embeddings.input_side(Dialect::OpenAi);
        assert_eq!(usage.input, Some(900));
        assert_eq!(embeddings.output(), None);
    }
}
