//! Requests that arrive: per tenant a rate that may change with time, an arrival pattern, and sizes.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairlane_core::units::{Micros, Moment, Tokens};

use crate::splitmix::Stream;

const MICROS_PER_SECOND: f64 = 1_000_000.0;

/// The three classes of the reference scenario, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Somebody waits for the first token.
    Interactive,
    /// Work in bulk.
    Batch,
    /// Work that may wait longest.
    Background,
}

/// How a tenant's requests are spaced. `L` is the integral of the rate; a request arrives each time it reaches the next mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Marks an exponentially distributed distance apart.
    Poisson,
    /// Marks a gamma distributed distance of mean 1 apart: burstier than Poisson where the variation is above 1.
    Gamma {
        /// The distances' standard deviation over their mean.
        variation: f64,
    },
    /// The first mark anywhere in the first unit, then one unit apart, each bringing `block` requests at once
    /// (a unit is then `block` requests).
    Even {
        /// Requests that arrive at the same moment.
        block: u32,
    },
}

/// How many tokens a request has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// `mean` times a number evenly distributed between `low` and `high`, rounded.
    Spread {
        /// Tokens.
        mean: f64,
        /// Least factor.
        low: f64,
        /// Largest factor.
        high: f64,
    },
    /// A context that grows with time: `from` tokens at the start, `by` more after `over`, and so on.
    Growing {
        /// Tokens at the start.
        from: f64,
        /// Tokens added in `over`.
        by: f64,
        /// The time in which `by` tokens are added.
        over: Micros,
    },
}

/// One tenant's traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its class.
    pub class: Class,
    /// Requests a second at the start.
    pub rate: f64,
    /// Later rates: from when, and requests a second; in the order of time.
    pub rate_changes: Vec<(Moment, f64)>,
    /// Spacing.
    pub pattern: Pattern,
    /// Prompt sizes.
    pub prompt: Size,
    /// Natural output lengths.
    pub output: Size,
    /// The output bound that each request declares; outputs are cut to it.
    pub max_tokens: Tokens,
}

/// One request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Moment,
    /// The index of its tenant.
    pub tenant: usize,
    /// Its tenant's class.
    pub class: Class,
    /// Prompt tokens.
    pub prompt: Tokens,
    /// Output tokens that it would make, from 1 to `max_tokens`.
    pub output: Tokens,
    /// The output bound that it declares.
    pub max_tokens: Tokens,
}

/// One tenant's endless arrivals, whose rate can be changed while it runs.
///
/// Arrivals are placed by the cumulative-rate method: the time of a request is where the integral of the rate reaches its
/// mark, so a changed rate leaves the random numbers as they are. The tenant with index i draws from streams 2i (arrivals) and
/// 2i + 1 (sizes: one number for the prompt, then one for the output).
#[derive(Clone, Debug)]
pub struct Source {
    tenant: Tenant,
    index: usize,
    marks: Stream,
    sizes: Stream,
    /// The integral of the rate at which the next request arrives.
    mark: f64,
    /// Requests that arrive together at `mark` and are still to be taken.
    left_at_mark: u32,
    /// Never empty; in the order of time.
    pieces: Vec<Piece>,
}

/// A stretch of constant rate.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from_seconds: f64,
    integral_at_start: f64,
    rate: f64,
}

/// The arrivals of several tenants up to an end, by time; at the same moment by tenant.
#[derive(Clone, Debug)]
pub struct Traffic {
    sources: Vec<Source>,
    next: BinaryHeap<Reverse<(Moment, usize)>>,
    until: Moment,
}

impl Class {
    /// 0 for the most urgent.
    #[must_use]
    pub const fn rank(self) -> usize {
        self as usize
    }

    /// The name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
            Self::Background => "background",
        }
    }
}

impl Source {
    /// The arrivals of the tenant with this index under this seed.
    #[must_use]
    pub fn seeded(tenant: Tenant, index: usize, seed: u64) -> Self {
        let mut marks = Stream::seeded(seed, index as u64 * 2);
        let mark = match tenant.pattern {
            Pattern::Poisson | Pattern::Gamma { .. } => tenant.pattern.distance(&mut marks),
            Pattern::Even { block } => marks.unit() * f64::from(block),
        };
        let start = Piece { from_seconds: 0.0, integral_at_start: 0.0, rate: tenant.rate };
        let changes = tenant.rate_changes.clone();
        let mut source = Self {
            left_at_mark: tenant.pattern.block(),
            tenant,
            index,
            marks,
            sizes: Stream::seeded(seed, index as u64 * 2 + 1),
            mark,
            pieces: vec![start],
        };
        for (at, rate) in changes {
            source.change_rate(at, rate);
        }
        source
    }

    /// The tenant.
    #[must_use]
    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// From `at` on, `rate` requests a second; changes known for later moments are dropped. A request that the earlier rate
    /// would have brought by `at` stays where it is.
    pub fn change_rate(&mut self, at: Moment, rate: f64) {
        let from_seconds = seconds(at);
        let kept = self.pieces.partition_point(|piece| piece.from_seconds < from_seconds).max(1);
        self.pieces.truncate(kept);
        let integral_at_start = self.pieces[kept - 1].integral_at(from_seconds);
        self.pieces.push(Piece { from_seconds, integral_at_start, rate });
    }

    /// When the next request arrives; none if the rate stays zero.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        let ends = self.pieces[1..].iter().map(|piece| piece.from_seconds).chain([f64::INFINITY]);
        let mut reached =
            self.pieces.iter().zip(ends).filter_map(|(piece, end)| piece.reaches(self.mark, end));
        reached.next().map(moment)
    }

    /// Takes the next request; none if the rate stays zero.
    pub fn take(&mut self) -> Option<Arrival> {
        let at = self.next_at()?;
        let prompt = self.tenant.prompt.draw(&mut self.sizes, at);
        let output = self.tenant.output.draw(&mut self.sizes, at);
        self.left_at_mark -= 1;
        if self.left_at_mark == 0 {
            self.mark += self.tenant.pattern.distance(&mut self.marks);
            self.left_at_mark = self.tenant.pattern.block();
            self.forget_pieces_before(seconds(at));
        }
        Some(Arrival {
            at,
            tenant: self.index,
            class: self.tenant.class,
            prompt,
            output: output.min(self.tenant.max_tokens),
            max_tokens: self.tenant.max_tokens,
        })
    }

    /// Rates that are over can place no arrival any more: a source whose rate is switched for days stays small.
    fn forget_pieces_before(&mut self, at_seconds: f64) {
        let over = self.pieces.partition_point(|piece| piece.from_seconds <= at_seconds).saturating_sub(1);
        self.pieces.drain(..over);
    }
}

impl Traffic {
    /// The tenants' arrivals before `until`; a tenant's index is its place.
    #[must_use]
    pub fn seeded(tenants: Vec<Tenant>, seed: u64, until: Moment) -> Self {
        let sources: Vec<Source> = tenants
            .into_iter()
            .enumerate()
            .map(|(index, tenant)| Source::seeded(tenant, index, seed))
            .collect();
        let next = sources
            .iter()
            .enumerate()
            .filter_map(|(index, source)| Some(Reverse((source.next_at()?, index))));
        let next = next.collect();
        Self { sources, next, until }
    }
}

impl Iterator for Traffic {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let Reverse((at, index)) = self.next.pop()?;
        if at >= self.until {
            return self.next();
        }
        let source = &mut self.sources[index];
        let arrival = source.take()?;
        if let Some(at) = source.next_at() {
            self.next.push(Reverse((at, index)));
        }
        Some(arrival)
    }
}

impl Pattern {
    const fn block(self) -> u32 {
        match self {
            Self::Poisson | Self::Gamma { .. } => 1,
            Self::Even { block } => block,
        }
    }

    /// From one mark to the next.
    fn distance(self, marks: &mut Stream) -> f64 {
        match self {
            Self::Poisson => marks.exponential(),
            Self::Gamma { variation } => marks.gamma(1.0 / (variation * variation)),
            Self::Even { block } => f64::from(block),
        }
    }
}

impl Piece {
    fn integral_at(&self, at_seconds: f64) -> f64 {
        self.integral_at_start + (at_seconds - self.from_seconds) * self.rate
    }

    /// When the integral reaches `mark` on this piece, if it does so before `end_seconds`.
    fn reaches(&self, mark: f64, end_seconds: f64) -> Option<f64> {
        if self.rate <= 0.0 {
            return None;
        }
        let at_seconds = self.from_seconds + (mark - self.integral_at_start).max(0.0) / self.rate;
        (at_seconds < end_seconds).then_some(at_seconds)
    }
}

impl Size {
    /// At least one token. A growing size draws a number too, so that the next draw of a request never depends on the kind.
    fn draw(self, sizes: &mut Stream, at: Moment) -> Tokens {
        let unit = sizes.unit();
        let tokens = match self {
            Self::Spread { mean, low, high } => mean * (low + (high - low) * unit),
            Self::Growing { from, by, over } => from + by * (seconds(at) * MICROS_PER_SECOND / over.0 as f64),
        };
        Tokens(tokens.round().max(1.0) as u64)
    }
}

fn seconds(at: Moment) -> f64 {
    at.0 as f64 / MICROS_PER_SECOND
}

fn moment(at_seconds: f64) -> Moment {
    Moment((at_seconds * MICROS_PER_SECOND).round() as u64)
}
