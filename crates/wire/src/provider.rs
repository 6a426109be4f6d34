//! What a hosted provider's headers say of its own limits, in the OpenAI and the Anthropic dialect.

use fairlane_core::occupancy::Allowance;
use fairlane_core::units::Micros;

/// What is left of a provider's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowances {
    /// Of tokens.
    pub tokens: Option<Allowance>,
    /// Of requests.
    pub requests: Option<Allowance>,
}

impl Allowances {
    /// Whether nothing was told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_none() && self.requests.is_none()
    }
}

/// Reads the headers of an answer; `lookup` gives one by its name in lower case, `unix_millis` is the time of day, which Anthropic's
/// moments are compared with. A limit is told only if both what is left and when it is full again are.
///
/// # Examples
///
/// ```
/// use fairlane_core::units::Micros;
/// use fairlane_wire::provider::read;
///
/// let told = read(
///     |name| match name {
///         "x-ratelimit-limit-tokens" => Some("150000"),
///         "x-ratelimit-remaining-tokens" => Some("149984"),
///         "x-ratelimit-reset-tokens" => Some("6m0s"),
///         _ => None,
///     },
///     0,
/// );
/// assert_eq!(told.tokens.unwrap().full_in, Micros::from_secs(360));
/// ```
#[must_use]
pub fn read<'a>(lookup: impl Fn(&str) -> Option<&'a str>, unix_millis: u64) -> Allowances {
    let allowance = |names: &Names| {
        let count = |name| lookup(name)?.trim().parse::<u64>().ok();
        let left = count(names.left)?;
        let full_in = span(lookup(names.reset)?.trim(), unix_millis)?;
        let limit = count(names.limit).filter(|limit| *limit >= left && *limit > 0);
        Some(Allowance { limit, left, full_in })
    };
    let first = |names: &[Names]| names.iter().find_map(allowance);
    Allowances { tokens: first(&TOKENS), requests: first(&REQUESTS) }
}

/// A span: `6m0s` or `1.146s`, whole seconds (Azure), or the moment when it ends (Anthropic). Zero and less say nothing.
fn span(text: &str, unix_millis: u64) -> Option<Micros> {
    let span = match (text.parse::<u64>(), text.contains('T')) {
        (Ok(seconds), _) => Micros::from_secs(seconds),
        (Err(_), true) => Micros::from_millis(moment_millis(text)?.saturating_sub(unix_millis)),
        (Err(_), false) => duration(text)?,
    };
    (span > Micros::ZERO).then_some(span)
}

/// Numbers with units, one after the other, as Go writes a duration.
fn duration(text: &str) -> Option<Micros> {
    let mut rest = text;
    let mut micros = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let unit_micros = match unit {
            "h" => 3.6e9,
            "m" => 6e7,
            "s" => 1e6,
            "ms" => 1e3,
            "us" | "µs" => 1.0,
            "ns" => 1e-3,
            _ => return None,
        };
        micros += number.parse::<f64>().ok()? * unit_micros;
        rest = next;
    }
    // Rounded up: what refills is never expected early.
    (micros.is_finite() && micros < MICROS_MAX).then_some(Micros(micros.ceil() as u64))
}

/// Milliseconds since 1970 of `2026-01-31T12:00:00Z`; a fraction is dropped, an offset other than none is not understood.
fn moment_millis(text: &str) -> Option<u64> {
    let (date, time) =
        text.strip_suffix(['Z', 'z']).or_else(|| text.strip_suffix("+00:00"))?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.split('.').next()?.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let is_real = (1_970..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    is_real.then(|| (((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1_000)
}

/// Days from 1970 to a date of the Gregorian calendar. Years begin in March, so that the leap day is their last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month < 3 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let of_years = year * 365 + year / 4 - year / 100 + year / 400;
    of_years + (153 * month + 2) / 5 + day - 1 - DAYS_TO_1970
}

struct Names {
    limit: &'static str,
    left: &'static str,
    reset: &'static str,
}

/// Where several are told, the first one is the one that binds.
const TOKENS: [Names; 4] = [
    Names {
        limit: "x-ratelimit-limit-tokens",
        left: "x-ratelimit-remaining-tokens",
        reset: "x-ratelimit-reset-tokens",
    },
    Names {
        limit: "x-ratelimit-limit-project-tokens",
        left: "x-ratelimit-remaining-project-tokens",
        reset: "x-ratelimit-reset-project-tokens",
    },
    Names {
        limit: "anthropic-ratelimit-tokens-limit",
        left: "anthropic-ratelimit-tokens-remaining",
        reset: "anthropic-ratelimit-tokens-reset",
    },
    Names {
        limit: "anthropic-ratelimit-input-tokens-limit",
        left: "anthropic-ratelimit-input-tokens-remaining",
        reset: "anthropic-ratelimit-input-tokens-reset",
    },
];
const REQUESTS: [Names; 2] = [
    Names {
        limit: "x-ratelimit-limit-requests",
        left: "x-ratelimit-remaining-requests",
        reset: "x-ratelimit-reset-requests",
    },
    Names {
        limit: "anthropic-ratelimit-requests-limit",
        left: "anthropic-ratelimit-requests-remaining",
        reset: "anthropic-ratelimit-requests-reset",
    },
];
/// Days from the first of March of year 0 to 1970.
const DAYS_TO_1970: u64 = 719_468;
/// A year: no limit takes longer.
const MICROS_MAX: f64 = 3.2e13;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(headers: &[(&str, &'static str)], unix_millis: u64) -> Allowances {
        read(|name| headers.iter().find(|header| header.0 == name).map(|header| header.1), unix_millis)
    }

    #[test]
    fn spans_are_read_in_every_form_that_providers_use() {
        for (text, micros) in [
            ("6m0s", 360_000_000),
            ("1h2m3s", 3_723_000_000),
            ("1.146s", 1_146_000),
            ("12ms", 12_000),
            ("7", 7_000_000),
            ("1m30.5s", 90_500_000),
            ("2027-01-31T12:00:05Z", 5_000_000),
            ("2027-01-31T12:00:05.9Z", 5_000_000),
        ] {
            assert_eq!(span(text, 1_801_396_800_000), Some(Micros(micros)), "{text}");
        }
        for text in [
            "",
            "0",
            "0s",
            "-1",
            "soon",
            "5x",
            "s",
            "1.2.3s",
            "9999999999h",
            "2027-13-01T00:00:00Z",
            "T",
            "2027-01-31T11:00:00Z",
        ] {
            assert_eq!(span(text, 1_801_396_800_000), None, "{text}");
        }
    }

    #[test]
    fn a_moment_is_that_of_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2024-03-01T00:00:00+00:00", 1_709_251_200),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(moment_millis(text), Some(seconds * 1_000), "{text}");
        }
    }

    #[test]
    fn anthropic_tells_a_moment_and_the_limit_that_binds() {
        let told = told(
            &[
                ("anthropic-ratelimit-tokens-limit", "80000"),
                ("anthropic-ratelimit-tokens-remaining", "79000"),
                ("anthropic-ratelimit-tokens-reset", "2027-01-31T12:01:00Z"),
                ("anthropic-ratelimit-input-tokens-remaining", "5"),
                ("anthropic-ratelimit-input-tokens-reset", "2027-01-31T12:01:00Z"),
                ("anthropic-ratelimit-requests-remaining", "49"),
                ("anthropic-ratelimit-requests-reset", "2027-01-31T12:00:01Z"),
            ],
            1_801_396_800_000,
        );
        let tokens = Allowance { limit: Some(80_000), left: 79_000, full_in: Micros::from_secs(60) };
        assert_eq!(told.tokens, Some(tokens));
        assert_eq!(told.requests, Some(Allowance { limit: None, left: 49, full_in: Micros::from_secs(1) }));
    }

    #[test]
    fn what_is_not_told_whole_or_makes_no_sense_is_not_told() {
        let lone = told(&[("x-ratelimit-remaining-tokens", "0")], 0);
        assert!(lone.is_empty(), "nobody says for how long");
        let unknown = told(&[("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "0")], 0);
        assert!(unknown.is_empty());
        let more = told(
            &[
                ("x-ratelimit-limit-requests", "10"),
                ("x-ratelimit-remaining-requests", "60"),
                ("x-ratelimit-reset-requests", "1s"),
            ],
            0,
        );
        assert_eq!(more.requests.unwrap().limit, None, "more is left than there is");
    }
}
