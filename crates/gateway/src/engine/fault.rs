//! Faults that an engine shows on request: their names on the command line and in the `x-sim-fault` header.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use http::StatusCode;

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// An error status before the first byte, with a `retry-after` of so many seconds if given.
    Status {
        /// 400 to 599.
        status: StatusCode,
        /// Seconds.
        retry_after: Option<u32>,
    },
    /// 503 with an HTML page, as a load balancer in front of the engine sends it.
    Html503,
    /// The connection is closed without an answer.
    Refuse,
    /// 200 with an empty body.
    Empty,
    /// Nothing at all is sent for so many milliseconds; then the answer is as usual.
    SlowStart(u32),
    /// Headers at once, then silence for so many milliseconds, or for ever. No work is done in the silence.
    Stall(Option<u32>),
    /// The connection breaks after so many stream events; an answer that is not streamed breaks in its middle.
    Cut(u32),
    /// A stream fails with an error event after so many tokens; with 0 the first event is a 503 overload, as SGLang does.
    /// An answer that is not streamed is a 503.
    ErrorEvent(u32),
    /// No usage is reported anywhere.
    NoUsage,
    /// So many more output tokens are reported than were made.
    UsageOver(u32),
}

/// A fault that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFault(String);

impl FromStr for Fault {
    type Err = BadFault;

    fn from_str(text: &str) -> Result<Self, BadFault> {
        let bad = || BadFault(text.chars().take(64).collect());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse::<u32>().map_err(|_| bad())?)),
            None => (text, None),
        };
        Ok(match (name, number) {
            ("none", None) => Self::None,
            ("html-503", None) => Self::Html503,
            ("refuse", None) => Self::Refuse,
            ("empty", None) => Self::Empty,
            ("no-usage", None) => Self::NoUsage,
            ("stall", millis) => Self::Stall(millis),
            ("slow-start", Some(millis)) => Self::SlowStart(millis),
            ("cut", Some(events)) => Self::Cut(events),
            ("error-event", Some(tokens)) => Self::ErrorEvent(tokens),
            ("usage-over", Some(tokens)) => Self::UsageOver(tokens),
            (status, retry_after) => {
                Self::Status { status: error_status(status).ok_or_else(bad)?, retry_after }
            }
        })
    }
}

fn error_status(text: &str) -> Option<StatusCode> {
    let status: u16 = text.parse().ok()?;
    if (400..=599).contains(&status) { StatusCode::from_u16(status).ok() } else { None }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Status { status, retry_after: None } => write!(f, "{}", status.as_u16()),
            Self::Status { status, retry_after: Some(seconds) } => write!(f, "{}:{seconds}", status.as_u16()),
            Self::Html503 => f.write_str("html-503"),
            Self::Refuse => f.write_str("refuse"),
            Self::Empty => f.write_str("empty"),
            Self::SlowStart(millis) => write!(f, "slow-start:{millis}"),
            Self::Stall(None) => f.write_str("stall"),
            Self::Stall(Some(millis)) => write!(f, "stall:{millis}"),
            Self::Cut(events) => write!(f, "cut:{events}"),
            Self::ErrorEvent(tokens) => write!(f, "error-event:{tokens}"),
            Self::NoUsage => f.write_str("no-usage"),
            Self::UsageOver(tokens) => write!(f, "usage-over:{tokens}"),
        }
    }
}

impl fmt::Display for BadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "unknown fault {:?}: give a status from 400 to 599 (429:2 adds retry-after), stall[:MS], slow-start:MS, cut:N, \
             error-event:N, no-usage, usage-over:N, refuse, html-503, empty or none",
            self.0
        )
    }
}

impl Error for BadFault {}

#[cfg(test)]
mod tests {
    use super::Fault;

    #[test]
    fn every_fault_reads_back_as_it_is_written() {
        for name in [
            "none",
            "500",
            "429:2",
            "html-503",
            "refuse",
            "empty",
            "slow-start:5",
            "stall",
            "stall:10",
            "cut:3",
            "error-event:0",
            "no-usage",
            "usage-over:7",
        ] {
            assert_eq!(name.parse::<Fault>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn unknown_names_numbers_and_statuses_are_refused() {
        for name in ["", "cut", "cut:-1", "cut:x", "200", "600", "refuse:1", "stall:99999999999", "none:1"] {
            assert!(name.parse::<Fault>().is_err(), "{name}");
        }
    }
}
