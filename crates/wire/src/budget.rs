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

/// The headers for these budgets. `unix_now_secs` is the wall clock's, which Anthropic's names need.
///
/// Of several limits of the same kind the one with least left is shown. What is unlimited has no header.
#[must_use]
pub fn headers(budgets: &[Budget], dialect: Dialect, unix_now_secs: u64) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    let names: &[_] = match dialect {
        Dialect::OpenAi => &OPENAI,
        Dialect::Anthropic => &ANTHROPIC,
    };
    for (dimension, [limit, remaining, reset]) in names {
        let Some(budget) = tightest(budgets, *dimension) else { continue };
        headers.push((*limit, budget.capacity.to_string()));
        headers.push((*remaining, budget.remaining.to_string()));
        let reset_value = match dialect {
            Dialect::OpenAi => go_duration(budget.until_full),
            Dialect::Anthropic => rfc3339(unix_now_secs.saturating_add(budget.until_full.as_secs_ceil())),
        };
        headers.push((*reset, reset_value));
    }
    ietf(budgets, &mut headers);
    headers
}

/// The pair of the IETF draft "RateLimit header fields for HTTP" (draft 10): `q` the quota, `w` the window in seconds, `r` what
/// remains, `t` the seconds until more is there.
fn ietf(budgets: &[Budget], headers: &mut Vec<(&'static str, String)>) {
    let mut policies = Vec::new();
    let mut remains = Vec::new();
    for dimension in SHOWN {
        let Some(budget) = tightest(budgets, dimension) else { continue };
        let name = format!("\"{}-{}\"", budget.scope, dimension.name());
        let window = match budget.window.as_secs_ceil() {
            0 => String::new(),
            secs => format!(";w={secs}"),
        };
        policies.push(format!("{name};q={}{window}", budget.capacity));
        let more = match budget.until_more.as_secs_ceil() {
            0 => String::new(),
            secs => format!(";t={secs}"),
        };
        remains.push(format!("{name};r={}{more}", budget.remaining));
    }
    if !policies.is_empty() {
        headers.push(("ratelimit-policy", policies.join(", ")));
        headers.push(("ratelimit", remains.join(", ")));
    }
}

fn tightest(budgets: &[Budget], dimension: Dimension) -> Option<&Budget> {
    budgets.iter().filter(|budget| budget.dimension == dimension).min_by_key(|budget| budget.remaining)
}

/// A duration as OpenAI writes it: `6m0s`, `1.146s`, `12ms`.
fn go_duration(span: Micros) -> String {
    let millis = span.as_millis_ceil();
    if millis == 0 {
        return "0s".to_owned();
    }
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let (hours, minutes, millis) = (millis / 3_600_000, millis / 60_000 % 60, millis % 60_000);
    let mut text = String::new();
    if hours > 0 {
        text.push_str(&format!("{hours}h"));
    }
    if hours > 0 || minutes > 0 {
        text.push_str(&format!("{minutes}m"));
    }
    let fraction = format!("{:03}", millis % 1_000);
    let fraction = fraction.trim_end_matches('0');
    text.push_str(&(millis / 1_000).to_string());
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text.push('s');
    text
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

    #[test]
    fn the_tightest_limit_is_shown() {
        let headers = headers(&[tokens("tenant", 1_900), tokens("key", 100)], Dialect::OpenAi, 0);
        assert!(headers.contains(&("x-ratelimit-limit-tokens", "2000".to_owned())));
        assert!(headers.contains(&("x-ratelimit-remaining-tokens", "100".to_owned())));
        assert!(headers.contains(&("x-ratelimit-reset-tokens", "1.146s".to_owned())));
        assert!(headers.contains(&("ratelimit-policy", "\"key-tokens\";q=2000;w=20".to_owned())));
        assert!(headers.contains(&("ratelimit", "\"key-tokens\";r=100;t=1".to_owned())));
    }

    #[test]
    fn what_is_unlimited_has_no_header() {
        assert_eq!(headers(&[], Dialect::OpenAi, 0), []);
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
            assert_eq!(go_duration(Micros::from_millis(millis)), text);
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
