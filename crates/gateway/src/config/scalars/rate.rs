//! Rates: how fast a bucket refills, what it holds, and how far below zero it may go.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use fairlane_core::bucket::{Rate as RefillRate, Shape};
use fairlane_core::policy::{Dimension, RateLimit};
use fairlane_core::units::{Amount, Micros};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::{Count, Text, TextVisitor, TimeSpan, quoted, text_schema, whole};

/// A rate with its burst, checked to fit a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Refill, bucket and debt.
    pub shape: Shape,
    /// Counts what it would have refused, and refuses nothing.
    pub shadow: Option<bool>,
}

impl Rate {
    fn new(
        text: RateText,
        burst: Option<TimeSpan>,
        debt_max: Option<Count>,
        shadow: Option<bool>,
    ) -> Result<Self, String> {
        let burst = text.burst.or(burst).map_or(BURST_DEFAULT, |burst| burst.0);
        // The dimension plays no part in the shape.
        let limit = RateLimit::new(Dimension::Tokens, text.rate, burst)
            .ok_or("the bucket (rate times burst) is above 4 billion, the most that a limit can hold: lower the burst")?;
        let mut shape = limit.shape;
        if let Some(debt_max) = debt_max {
            shape.debt_max = Amount::whole(u64::from(debt_max.0));
        }
        Ok(Self { shape, shadow })
    }

    /// As a limit of `dimension`; `block_shadow` is the block's own switch.
    #[must_use]
    pub fn limit(&self, dimension: Dimension, block_shadow: bool) -> RateLimit {
        RateLimit { dimension, shape: self.shape, shadow: self.shadow.unwrap_or(block_shadow) }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateVisitor)
    }
}

struct RateVisitor;

impl<'de> Visitor<'de> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RateText::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Rate, E> {
        RateText::from_text(text.trim()).and_then(|text| Rate::new(text, None, None, None)).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Rate, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rate, A::Error> {
        let object = RateObject::deserialize(MapAccessDeserializer::new(map))?;
        Rate::new(object.rate, object.burst, object.max_debt, object.shadow).map_err(A::Error::custom)
    }
}

impl JsonSchema for Rate {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let object = generator.subschema_for::<RateObject>();
        json_schema!({
            "description": "A rate with its burst: `200000/min burst 20s`, or an object that also bounds the debt.",
            "anyOf": [{"type": ["string", "integer"], "pattern": RateText::PATTERN}, object],
        })
    }
}

/// A rate written as an object.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RateObject")]
struct RateObject {
    /// The rate, such as `200000/min`; it may carry its burst. Required.
    rate: RateText,
    /// The bucket holds what the rate gives in this time. Default: `10s`. Bound: a bucket of 4 billion.
    burst: Option<TimeSpan>,
    /// How far below zero an overrun may push the bucket, in units (tokens, requests). Default: ten buckets. Bound: 4 billion.
    max_debt: Option<Count>,
    /// Counts what it would have refused, and refuses nothing. Default: the block's `shadow`.
    shadow: Option<bool>,
}

/// The text form of a rate.
#[derive(Clone, Copy, Debug)]
struct RateText {
    rate: RefillRate,
    burst: Option<TimeSpan>,
}

text_scalar!(RateText);

impl Text for RateText {
    const NAME: &'static str = "RateText";
    const EXPECTED: &'static str = "a rate such as 200000/min, 400/min burst 20s, 50/s, 1000000/hour or 0";
    const PATTERN: &'static str = "^(0|[0-9][0-9_]*[ ]*/[ ]*(s|sec|second|m|min|minute|h|hour|d|day)([ ]+burst[ ]+[0-9][0-9_]*(us|ms|s|m|h|d))?)$";
    const NUMBER: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self { rate: RefillRate::NEVER, burst: None });
        }
        let wrong = || {
            format!(
                "{} is not a rate: write it as 200000/min or 200000/min burst 20s (per s, min, hour or day)",
                quoted(text)
            )
        };
        let (units, rest) = text.split_once('/').ok_or_else(wrong)?;
        let units = whole(units.trim_end()).ok_or_else(wrong)?;
        let mut words = rest.split_whitespace();
        let period_secs = match words.next() {
            Some("s" | "sec" | "second") => 1,
            Some("m" | "min" | "minute") => 60,
            Some("h" | "hour") => 3_600,
            Some("d" | "day") => 86_400,
            _ => return Err(wrong()),
        };
        let burst = match (words.next(), words.next(), words.next()) {
            (None, ..) => None,
            (Some("burst"), Some(burst), None) => Some(TimeSpan::from_text(burst)?),
            _ => return Err(wrong()),
        };
        let rate = RefillRate::new(units, period_secs)
            .ok_or_else(|| format!("{} is above 4 billion a second", quoted(text)))?;
        Ok(Self { rate, burst })
    }
}

/// What a bucket holds where the configuration names no burst.
pub(crate) const BURST_DEFAULT: Micros = Micros::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Result<(u64, i64), String> {
        let rate = RateText::from_text(text).and_then(|text| Rate::new(text, None, None, None))?;
        Ok((rate.shape.rate.units_per_minute(), rate.shape.capacity.floor_units()))
    }

    #[test]
    fn rates_are_read_with_their_burst() {
        let table = [
            ("200000/min burst 20s", (200_000, 66_666)),
            ("200_000/min", (200_000, 33_333)),
            ("200000 / min", (200_000, 33_333)),
            ("50/s", (3_000, 500)),
            ("50/sec burst 1s", (3_000, 50)),
            ("6000/hour burst 1h", (100, 6_000)),
            ("1440/day burst 1d", (1, 1_440)),
            ("1/min", (1, 1)),
            ("0", (0, 0)),
            ("0/min", (0, 0)),
            ("100/min burst 0", (100, 1)),
        ];
        for (text, expected) in table {
            assert_eq!(rate(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_rate_is_refused_with_a_remedy() {
        for text in [
            "",
            "200000",
            "200000/",
            "/min",
            "-5/min",
            "1.5/min",
            "200000/fortnight",
            "200000/min burst",
            "5/min burst 20",
            "5/min 20s",
            "5/min burst 20s x",
            "_5/min",
            "5_/min",
            "99999999999999999999/min",
            "५/min",
        ] {
            let error = rate(text).unwrap_err();
            assert!(error.contains("200000/min") || error.contains("20s"), "{text}: {error}");
        }
        assert!(rate("4000000001/s").unwrap_err().contains("4 billion"));
        assert!(rate("4000000000/min burst 2m").unwrap_err().contains("lower the burst"));
        assert_eq!(rate("4000000000/min burst 1m"), Ok((4_000_000_000, 4_000_000_000)));
    }

    #[test]
    fn an_explicit_debt_replaces_ten_buckets() {
        let text = RateText::from_text("6000/min").unwrap();
        assert_eq!(Rate::new(text, None, None, None).unwrap().shape.debt_max, Amount::whole(10_000));
        assert_eq!(Rate::new(text, None, Some(Count(5)), None).unwrap().shape.debt_max, Amount::whole(5));
    }
}
