//! Quantities as people write them, in every file and every flag: `"4 MiB"`, `"100 Gbit/s"`, `"1.5 us"`, `"50 %"`.
//! The space before the unit may be left out.

use std::fmt;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};
use tributary_proto::contract::time::{Span, SpanError};

/// A number of bytes: a plain integer, or with one of `B kB MB GB KiB MiB GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// The slowest rate at which the longest packet's time still fits: 10 kbit/s.
    pub const MIN: Rate = Rate(10_000);
    /// The fastest rate that the fixed point resolves to 0.02 %: 100 Tbit/s.
    pub const MAX: Rate = Rate(100_000_000_000_000);

    /// Picoseconds for a byte with 16 bits of fraction, rounded up so that no link exceeds its rate.
    pub fn ps_per_byte(self) -> u64 {
        ((8_000_000_000_000u128 << 16).div_ceil(u128::from(self.0))) as u64
    }

    /// The time that this many bytes take.
    pub fn time_of(self, bytes: u64) -> Span {
        Span(((u128::from(bytes) * u128::from(self.ps_per_byte())) >> 16).min(u128::from(u64::MAX)) as u64)
    }
}

/// A rate: with one of `bit/s kbit/s Mbit/s Gbit/s Tbit/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRate(pub Rate);

/// A span of time: with one of `ps ns us ms s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub Span);

/// A probability or a share: a number from 0 to 1, or with `%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// Units, each with the number of smallest units in it.
type Units = &'static [(&'static str, f64)];

const BYTES: Units =
    &[("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("KiB", 1024.0), ("MiB", 1048576.0), ("GiB", 1073741824.0)];
const RATES: Units = &[("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9), ("Tbit/s", 1e12)];
const TIMES: Units = &[("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)];
const SHARES: Units = &[("%", 0.01), ("", 1.0)];

/// The number before a unit, in the smallest unit; the error is a sentence.
fn parse(text: &str, units: Units, example: &str) -> Result<f64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '+' | 'e' | 'E')));
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let wrong = || {
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
        format!("\"{text}\" is not a quantity: write a number and one of {}, as in \"{example}\"", names.join(", "))
    };
    let number: f64 = number.replace('_', "").parse().map_err(|_| wrong())?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
    if !number.is_finite() || number < 0.0 {
        return Err(format!("\"{text}\" is negative or infinite"));
    }
    Ok(number * factor)
}

/// A quantity that must be a whole number of its smallest unit below 2^63.
fn whole(value: f64, text: &str) -> Result<u64, String> {
    let rounded = value.round();
    if rounded > i64::MAX as f64 {
        return Err(format!("\"{text}\" is too large"));
    }
    Ok(rounded as u64)
}

impl std::str::FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Bytes, String> {
        if let Ok(bytes) = text.trim().parse() {
            return Ok(Bytes(bytes));
        }
        whole(parse(text, BYTES, "4 MiB")?, text).map(Bytes)
    }
}

impl std::str::FromStr for DataRate {
    type Err = String;
    fn from_str(text: &str) -> Result<DataRate, String> {
        let rate = Rate(whole(parse(text, RATES, "100 Gbit/s")?, text)?);
        if rate < Rate::MIN || rate > Rate::MAX {
            return Err(format!("\"{text}\" is not the rate of a link: 10 kbit/s to 100 Tbit/s are possible"));
        }
        Ok(DataRate(rate))
    }
}

impl std::str::FromStr for Duration {
    type Err = String;
    fn from_str(text: &str) -> Result<Duration, String> {
        text.parse().map(Duration).map_err(|error: SpanError| error.to_string())
    }
}

impl DataRate {
    /// The rate in Gbit/s.
    pub fn gbps(self) -> f64 {
        self.0.0 as f64 / 1e9
    }
}

impl From<Duration> for std::time::Duration {
    fn from(Duration(span): Duration) -> std::time::Duration {
        std::time::Duration::from_nanos(span.0 / 1_000)
    }
}

impl std::str::FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Share, String> {
        Share::checked(parse(text, SHARES, "1 %")?)
    }
}

impl Share {
    /// The share in percent, rounded to a millionth.
    pub fn percent(self) -> f64 {
        (self.0 * 1e8).round() / 1e6
    }

    fn checked(share: f64) -> Result<Share, String> {
        if (0.0..=1.0).contains(&share) { Ok(Share(share)) } else { Err(format!("{share} is not between 0 and 1")) }
    }
}

/// Writes a quantity in the largest unit in which it needs few digits.
fn show(value: f64, units: Units, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let fits = |&&(_, factor): &&(&str, f64)| value >= factor && (value / factor * 1000.0).fract() == 0.0;
    let largest = units.iter().filter(fits).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(&units[0]);
    write!(f, "{} {}", value / largest.1, largest.0)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0 as f64, BYTES, f)
    }
}

impl fmt::Display for DataRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0.0 as f64, RATES, f)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0.0 as f64, TIMES, f)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0 * 100.0)
    }
}

/// A number or a text in the file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a quantity, as in \"4 MiB\"")]
enum Written {
    Integer(u64),
    Number(f64),
    Text(String),
}

macro_rules! written {
    ($($name:ident: $number:expr;)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let from_number: fn(f64) -> Result<$name, String> = $number;
                match Written::deserialize(deserializer)? {
                    Written::Integer(number) => from_number(number as f64),
                    Written::Number(number) => from_number(number),
                    Written::Text(text) => text.parse(),
                }
                .map_err(D::Error::custom)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

written! {
    Bytes: |number| match number.fract() == 0.0 && number >= 0.0 {
        true => whole(number, &number.to_string()).map(Bytes),
        false => Err(format!("{number} is not a number of bytes")),
    };
    DataRate: |number| Err(format!("{number} has no unit: write it as in \"100 Gbit/s\""));
    Duration: |number| if number == 0.0 { Ok(Duration::default()) } else { Err(format!("{number} has no unit: write it as in \"1.5 us\"")) };
    Share: |number| Share::checked(number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!("4 MiB".parse(), Ok(Bytes(4 << 20)));
        assert_eq!("1500".parse(), Ok(Bytes(1500)));
        assert_eq!("1.5kB".parse(), Ok(Bytes(1500)));
        assert_eq!("100 Gbit/s".parse(), Ok(DataRate(Rate(100_000_000_000))));
        assert_eq!("300ns".parse(), Ok(Duration(Span(300_000))));
        assert_eq!("0.5 us".parse(), Ok(Duration(Span(500_000))));
        assert_eq!("50 %".parse(), Ok(Share(0.5)));
        assert_eq!("0.25".parse(), Ok(Share(0.25)));
    }

    #[test]
    fn anything_else_is_refused_with_a_sentence() {
        let sentence = "100".parse::<DataRate>().unwrap_err();
        assert!(sentence.contains("Gbit/s"), "{sentence}");
        assert!("4 parsec".parse::<Duration>().unwrap_err().contains("ps, ns, us, ms, s"));
        assert!("-1 s".parse::<Duration>().is_err());
        assert!("1 bit/s".parse::<DataRate>().unwrap_err().contains("10 kbit/s"));
        assert!("150 %".parse::<Share>().is_err());
        assert!("1e30 s".parse::<Duration>().is_err());
    }

    #[test]
    fn quantities_are_shown_as_they_would_be_written() {
        for text in ["4 MiB", "1.5 kB", "0 B"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        assert_eq!("1500 ns".parse::<Duration>().unwrap().to_string(), "1.5 us");
        assert_eq!("100 Gbit/s".parse::<DataRate>().unwrap().to_string(), "100 Gbit/s");
    }
}
