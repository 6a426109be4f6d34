//! The small values of a configuration (rates, spans of time, sizes, shares), read from text with the place of every mistake.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use fairlane_core::policy::BUCKET_UNITS_MAX;
use fairlane_core::units::Micros;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A value written as one scalar.
trait Text: Sized {
    /// Its name in the schema.
    const NAME: &'static str;
    /// What it looks like, for errors and for the schema.
    const EXPECTED: &'static str;
    /// A regular expression for the schema.
    const PATTERN: &'static str;
    /// Whether a JSON number is a way to write it.
    const NUMBER: bool;

    /// Reads it, or says what is wrong with it.
    fn from_text(text: &str) -> Result<Self, String>;
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Text> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text.trim()).map_err(E::custom)
    }
}

macro_rules! text_scalar {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // Asking for a string gives the scalar as it was written, so that `010` and `1_000` are ours to judge.
                deserializer.deserialize_str(TextVisitor(PhantomData))
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                <Self as Text>::NAME.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                text_schema::<Self>()
            }
        }
    )+};
}

text_scalar!(TimeSpan, Count, Decimal, Share, Size, Name, Toggle);

mod rate;

pub use rate::Rate;

fn text_schema<T: Text>() -> Schema {
    if T::NUMBER {
        json_schema!({"description": T::EXPECTED, "type": ["string", "number"], "pattern": T::PATTERN})
    } else {
        json_schema!({"description": T::EXPECTED, "type": "string", "pattern": T::PATTERN})
    }
}

/// A span of time: `500ms`, `20s`, `10m`, `1h`, `1d`; `0` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub Micros);

impl TimeSpan {
    /// Reads it, as the configuration has it.
    ///
    /// # Errors
    /// It is not a span of time.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::from_text(text)
    }

    /// As the standard library's type.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0.0)
    }
}

impl Text for TimeSpan {
    const NAME: &'static str = "TimeSpan";
    const EXPECTED: &'static str = "a span of time such as 500ms, 20s, 10m, 1h or 1d";
    const PATTERN: &'static str = "^(0|[0-9][0-9_]*(us|ms|s|m|h|d))$";
    const NUMBER: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{} is not a span of time: write it as 500ms, 20s, 10m, 1h or 1d", quoted(text));
        if text == "0" {
            return Ok(Self(Micros::ZERO));
        }
        let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(unit_at);
        let unit_micros: u64 = match unit {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => return Err(wrong()),
        };
        let micros = whole(number).ok_or_else(wrong)?.saturating_mul(unit_micros);
        if micros > TIME_SPAN_MAX.0 {
            return Err(format!("{} is too long: a span of time is at most 366d", quoted(text)));
        }
        Ok(Self(Micros(micros)))
    }
}

/// A whole number up to 4 billion; `_` may group its digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u32);

impl Text for Count {
    const NAME: &'static str = "Count";
    const EXPECTED: &'static str = "a whole number from 0 to 4 billion; _ may group its digits";
    const PATTERN: &'static str = "^[0-9][0-9_]*$";
    const NUMBER: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        let number = whole(text)
            .ok_or_else(|| format!("{} is not a whole number such as 1024 or 8_000_000", quoted(text)))?;
        if number > BUCKET_UNITS_MAX {
            return Err(format!("{} is above 4 billion, the most that a limit can hold", quoted(text)));
        }
        u32::try_from(number).map(Self).map_err(|error| error.to_string())
    }
}

/// A number with up to three decimals, kept in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal {
    /// Thousandths.
    pub millis: u32,
}

impl Text for Decimal {
    const NAME: &'static str = "Decimal";
    const EXPECTED: &'static str = "a number from 0 to 1,000,000 with up to three decimals";
    const PATTERN: &'static str = "^[0-9][0-9_]*(\\.[0-9]{1,3})?$";
    const NUMBER: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        thousandths(text)
            .filter(|millis| *millis <= 1_000_000_000)
            .and_then(|millis| u32::try_from(millis).ok())
            .map(|millis| Self { millis })
            .ok_or_else(|| {
                format!(
                    "{} is not a number from 0 to 1,000,000 with up to three decimals, such as 2 or 0.1",
                    quoted(text)
                )
            })
    }
}

/// A share in per cent, kept in thousandths of a per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// Thousandths of a per cent; all is 100,000.
    pub percent_millis: u32,
}

impl Text for Share {
    const NAME: &'static str = "Share";
    const EXPECTED: &'static str = "a share from 0% to 100%, such as 5%";
    const PATTERN: &'static str = "^[0-9]{1,3}(\\.[0-9]{1,3})?%$";
    const NUMBER: bool = false;

    fn from_text(text: &str) -> Result<Self, String> {
        text.strip_suffix('%')
            .and_then(|number| thousandths(number.trim_end()))
            .filter(|millis| *millis <= u64::from(SHARE_WHOLE_MILLIS))
            .and_then(|millis| u32::try_from(millis).ok())
            .map(|percent_millis| Self { percent_millis })
            .ok_or_else(|| format!("{} is not a share from 0% to 100%, such as 5%", quoted(text)))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Bytes.
    pub bytes: u64,
}

impl Text for Size {
    const NAME: &'static str = "Size";
    const EXPECTED: &'static str = "a size such as 65536, 64KiB, 16MiB or 1GiB";
    const PATTERN: &'static str = "^[0-9][0-9_]*(B|KiB|MiB|GiB|kB|MB|GB)?$";
    const NUMBER: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("{} is not a size: write it as 65536, 64KiB, 16MiB or 1GiB", quoted(text));
        let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit_bytes: u64 = match unit {
            "" | "B" => 1,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(wrong()),
        };
        let bytes =
            whole(number.trim_end()).and_then(|number| number.checked_mul(unit_bytes)).ok_or_else(wrong)?;
        Ok(Self { bytes })
    }
}

/// A name of a tenant, team, class, tier, pool, model or key: 1 to 256 bytes, no control characters, no blank at either end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub String);

impl Text for Name {
    const NAME: &'static str = "Name";
    const EXPECTED: &'static str = "a name of 1 to 256 bytes without control characters";
    const PATTERN: &'static str = "^[^\\x00-\\x1f\\x7f]{1,256}$";
    const NUMBER: bool = false;

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the name is empty".to_owned());
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(format!("the name has {} bytes, the most is {NAME_BYTES_MAX}", text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err("the name has a control character".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

/// A span of time, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toggle {
    /// Not at all.
    Off,
    /// That often.
    Every(TimeSpan),
}

impl Text for Toggle {
    const NAME: &'static str = "Toggle";
    const EXPECTED: &'static str = "off, or a span of time such as 5s";
    const PATTERN: &'static str = "^(off|0|[0-9][0-9_]*(us|ms|s|m|h|d))$";
    const NUMBER: bool = false;

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        TimeSpan::from_text(text)
            .map(Self::Every)
            .map_err(|_| format!("{} is neither off nor a span of time such as 5s", quoted(text)))
    }
}

/// The text in quotes, cut to a length that fits a line.
pub(crate) fn quoted(text: &str) -> String {
    let cut: String = text.chars().filter(|letter| !letter.is_control()).take(QUOTED_CHARS_MAX).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("\"{cut}{more}\"")
}

/// A whole number with `_` between digits.
fn whole(text: &str) -> Option<u64> {
    let starts_well = text.as_bytes().first().is_some_and(u8::is_ascii_digit) && !text.ends_with('_');
    let digits: String = text.chars().filter(|letter| *letter != '_').collect();
    (starts_well && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

/// A number with up to three decimals, times a thousand.
fn thousandths(text: &str) -> Option<u64> {
    let (number, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.is_empty() || decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let decimals: u64 = format!("{decimals:0<3}").parse().ok()?;
    whole(number)?.checked_mul(1_000)?.checked_add(decimals)
}

/// All of something, in thousandths of a per cent.
pub(crate) const SHARE_WHOLE_MILLIS: u32 = 100_000;
const TIME_SPAN_MAX: Micros = Micros::from_secs(366 * 86_400);
const NAME_BYTES_MAX: usize = 256;
const QUOTED_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_read_exactly() {
        assert_eq!(TimeSpan::from_text("500ms"), Ok(TimeSpan(Micros::from_millis(500))));
        assert_eq!(TimeSpan::from_text("10m"), Ok(TimeSpan(Micros::from_secs(600))));
        assert_eq!(TimeSpan::from_text("366d"), Ok(TimeSpan(TIME_SPAN_MAX)));
        assert!(TimeSpan::from_text("367d").is_err());
        assert!(TimeSpan::from_text("10").is_err());
        assert!(TimeSpan::from_text("99999999999999999d").is_err());
        assert_eq!(Size::from_text("16MiB"), Ok(Size { bytes: 16 << 20 }));
        assert!(Size::from_text("16mb").is_err());
        assert_eq!(Share::from_text("2.5%"), Ok(Share { percent_millis: 2_500 }));
        assert!(Share::from_text("101%").is_err());
        assert!(Share::from_text("5").is_err());
        assert_eq!(Decimal::from_text("0.1"), Ok(Decimal { millis: 100 }));
        assert_eq!(Decimal::from_text("4.57"), Ok(Decimal { millis: 4_570 }));
        assert!(Decimal::from_text("-1").is_err());
        assert!(Decimal::from_text("1.").is_err());
        assert_eq!(Count::from_text("8_000_000"), Ok(Count(8_000_000)));
        assert!(Count::from_text("4000000001").is_err());
    }
}
