//! Budget headers: what is left of the limits that apply, in each dialect's own names and in the IETF's.

use fairlane_core::policy::Dimension;
use fairlane_core::units::Micros;

use crate::dialect::Dialect;

/// One limit as it stands after a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The scope's name, for the IETF headers: `tenant`, `key`, ...
    pub scope: &'static str,
    /// What it counts.
    pub dimension: Dimension,
    /// What it holds at most, in whole units.
    pub capacity: u64,
    /// What is left, in whole units; debt counts as nothing left.
    pub remaining: u64,
    /// Time until it is full.
    pub until_full: Micros,
    /// Time until one more unit is there.
    pub until_more: Micros,
    /// Time to fill it from empty; zero if nothing ever comes back.
    pub window: Micros,
}

/// Gives the headers for these budgets to `each`. `unix_now_secs` is the wall clock's, which Anthropic's names need.
///
/// Of several limits of the same kind the one with least left is shown. What is unlimited has no header.
pub fn headers(
    budgets: &[Budget],
    dialect: Dialect,
    unix_now_secs: u64,
    mut each: impl FnMut(&'static str, &str),
) {
    let mut value = String::with_capacity(VALUE_BYTES_USUAL);
    let mut give = |name, write: &dyn Fn(&mut String)| {
        value.clear();
        write(&mut value);
        each(name, &value);
    };
    let names: &[_] = match dialect {
        Dialect::OpenAi => &OPENAI,
        Dialect::Anthropic => &ANTHROPIC,
    };
    for (dimension, [limit, remaining, reset]) in names {
        let Some(budget) = tightest(budgets, *dimension) else { continue };
        give(limit, &|value| push_decimal(value, budget.capacity));
        give(remaining, &|value| push_decimal(value, budget.remaining));
        give(reset, &|value| match dialect {
            Dialect::OpenAi => go_duration(value, budget.until_full),
            Dialect::Anthropic => {
                let secs = unix_now_secs.saturating_add(budget.until_full.as_secs_ceil());
                value.push_str(&rfc3339(secs));
            }
        });
    }
    let shown = SHOWN.map(|dimension| tightest(budgets, dimension));
    if shown.iter().any(Option::is_some) {
        give("ratelimit-policy", &|value| ietf(value, &shown, policy));
        give("ratelimit", &|value| ietf(value, &shown, remains));
    }
}

/// The pair of the IETF draft "RateLimit header fields for HTTP" (draft 10): `q` the quota, `w` the window in seconds, `r` what
/// remains, `t` the seconds until more is there.
fn ietf(value: &mut String, shown: &[Option<&Budget>], write: fn(&mut String, &Budget)) {
    for budget in shown.iter().flatten() {
        if !value.is_empty() {
            value.push_str(", ");
        }
        value.push('"');
        value.push_str(budget.scope);
        value.push('-');
        value.push_str(budget.dimension.name());
        value.push('"');
        write(value, budget);
    }
}

fn policy(value: &mut String, budget: &Budget) {
    push_number(value, ";q=", budget.capacity);
    if budget.window > Micros::ZERO {
        push_number(value, ";w=", budget.window.as_secs_ceil());
    }
}

fn remains(value: &mut String, budget: &Budget) {
    push_number(value, ";r=", budget.remaining);
    if budget.until_more > Micros::ZERO {
        push_number(value, ";t=", budget.until_more.as_secs_ceil());
    }
}

fn tightest(budgets: &[Budget], dimension: Dimension) -> Option<&Budget> {
    budgets.iter().filter(|budget| budget.dimension == dimension).min_by_key(|budget| budget.remaining)
}

/// A duration as OpenAI writes it: `6m0s`, `1.146s`, `12ms`.
fn go_duration(text: &mut String, span: Micros) {
    let millis = span.as_millis_ceil();
    if millis == 0 {
        return text.push_str("0s");
    }
    if millis < 1_000 {
        push_decimal(text, millis);
        return text.push_str("ms");
    }
    let (hours, minutes, millis) = (millis / 3_600_000, millis / 60_000 % 60, millis % 60_000);
    if hours > 0 {
        push_decimal(text, hours);
        text.push('h');
    }
    if hours > 0 || minutes > 0 {
        push_decimal(text, minutes);
        text.push('m');
    }
    push_decimal(text, millis / 1_000);
    let (mut fraction, mut digits) = (millis % 1_000, 3);
    while digits > 0 && fraction % 10 == 0 {
        (fraction, digits) = (fraction / 10, digits - 1);
    }
    if digits > 0 {
        text.push('.');
        let places = [100, 10, 1].into_iter().skip(3 - digits);
        places.for_each(|place| text.push(char::from(b'0' + (fraction / place % 10) as u8)));
    }
    text.push('s');
}

fn push_number(text: &mut String, name: &str, number: u64) {
    text.push_str(name);
    push_decimal(text, number);
}

/// The formatting machinery of the standard library is ten times slower, and every answer has a dozen numbers.
fn push_decimal(text: &mut String, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits[first..].iter().for_each(|digit| text.push(char::from(*digit)));
}

/// An instant as RFC 3339 in UTC. The calendar is Howard Hinnant's `civil_from_days` (chrono-Compatible Low-Level Date
/// Algorithms, 2013).
fn rfc3339(unix_secs: u64) -> String {
    let (days, secs) = (unix_secs / 86_400, unix_secs % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", secs / 3_600, secs / 60 % 60, secs % 60)
}

type Names = (Dimension, [&'static str; 3]);

const OPENAI: [Names; 2] = [
    (
        Dimension::Requests,
        ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    ),
    (
        Dimension::Tokens,
        ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
    ),
];
const ANTHROPIC: [Names; 4] = [
    (
        Dimension::Requests,
        [
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
        ],
    ),
    (
        Dimension::Tokens,
        [
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ],
    ),
    (
        Dimension::InputTokens,
        [
            "anthropic-ratelimit-input-tokens-limit",
            "anthropic-ratelimit-input-tokens-remaining",
            "anthropic-ratelimit-input-tokens-reset",
        ],
    ),
    (
        Dimension::OutputTokens,
        [
            "anthropic-ratelimit-output-tokens-limit",
            "anthropic-ratelimit-output-tokens-remaining",
            "anthropic-ratelimit-output-tokens-reset",
        ],
    ),
];
const SHOWN: [Dimension; 6] = [
    Dimension::Requests,
    Dimension::Tokens,
    Dimension::InputTokens,
    Dimension::OutputTokens,
    Dimension::Work,
    Dimension::RunBudget,
];

/// Room for the longest usual value.
const VALUE_BYTES_USUAL: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(scope: &'static str, remaining: u64) -> Budget {
        Budget {
            scope,
            dimension: Dimension::Tokens,
            capacity: 2_000,
            remaining,
            until_full: Micros::from_millis(1_146),
            until_more: Micros(1),
            window: Micros::from_secs(20),
        }
    }

    fn shown(budgets: &[Budget]) -> Vec<(&'static str, String)> {
        let mut shown = Vec::new();
        headers(budgets, Dialect::OpenAi, 0, |name, value| shown.push((name, value.to_owned())));
        shown
    }

    #[test]
    fn the_tightest_limit_is_shown() {
        let headers = shown(&[tokens("tenant", 1_900), tokens("key", 100)]);
        assert!(headers.contains(&("x-ratelimit-limit-tokens", "2000".to_owned())));
        assert!(headers.contains(&("x-ratelimit-remaining-tokens", "100".to_owned())));
        assert!(headers.contains(&("x-ratelimit-reset-tokens", "1.146s".to_owned())));
        assert!(headers.contains(&("ratelimit-policy", "\"key-tokens\";q=2000;w=20".to_owned())));
        assert!(headers.contains(&("ratelimit", "\"key-tokens\";r=100;t=1".to_owned())));
    }

    #[test]
    fn what_is_unlimited_has_no_header() {
        assert_eq!(shown(&[]), []);
    }

    #[test]
    fn durations_are_written_as_openai_does() {
        for (millis, text) in [
            (0, "0s"),
            (12, "12ms"),
            (1_146, "1.146s"),
            (360_000, "6m0s"),
            (3_600_500, "1h0m0.5s"),
            (59_999, "59.999s"),
        ] {
            let mut written = String::new();
            go_duration(&mut written, Micros::from_millis(millis));
            assert_eq!(written, text);
        }
    }

    #[test]
    fn instants_are_written_as_rfc_3339() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_796_083_199, "2026-11-30T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(secs), text);
        }
    }
}
