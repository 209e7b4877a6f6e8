//! The machines' time: integer picoseconds since the driver's own start. Drivers pass the time to machines; machines
//! never ask for it.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// A point in time, in picoseconds since the driver's start. The range is 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// A span of time, in picoseconds (one byte at 100 Gbit/s takes 80).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub u64);

impl Time {
    /// The driver's start.
    pub const ZERO: Time = Time(0);

    /// The span from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since the driver's start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos * 1_000)
    }

    /// A span of microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros * 1_000_000)
    }

    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis * 1_000_000_000)
    }

    /// A span of seconds, rounded to a picosecond; zero for negative seconds and NaN.
    pub fn from_secs_f64(secs: f64) -> Span {
        Span((secs * 1e12).round() as u64)
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-12
    }

    /// Whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }

    /// This exact span in the form that [`Span::from_str`](std::str::FromStr) reads: a whole number of the largest unit
    /// that fits.
    pub fn to_text(self) -> String {
        let fits = |&&(_, unit): &&(&str, u64)| self.0.is_multiple_of(unit);
        let (name, unit) = *UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
        format!("{} {name}", self.0 / unit)
    }

    /// `self * factor`, saturating.
    pub const fn times(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }
}

/// Units of time and their picoseconds, ascending.
const UNITS: [(&str, u64); 5] =
    [("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000), ("s", 1_000_000_000_000)];

/// Why a text is not a span of time. The error is a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// The text has no number, or no unit.
    #[error("\"{0}\" is not a quantity: write a number and one of ps, ns, us, ms, s, as in \"1.5 us\"")]
    Form(String),
    /// The number is negative or too large for a span.
    #[error("\"{0}\" is negative or too much")]
    Range(String),
}

/// Reads a number and a unit, as in `1.5 us`; rounded to a picosecond.
impl FromStr for Span {
    type Err = SpanError;
    fn from_str(text: &str) -> Result<Span, SpanError> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | '+' | 'e' | 'E')));
        let (number, unit) = text.split_at(split.unwrap_or(text.len()));
        let wrong = || SpanError::Form(text.to_owned());
        let number: f64 = number.replace('_', "").parse().map_err(|_| wrong())?;
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        let picoseconds = (number * *factor as f64).round();
        if !(0.0..=i64::MAX as f64).contains(&picoseconds) {
            return Err(SpanError::Range(text.to_owned()));
        }
        Ok(Span(picoseconds as u64))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1_000_000 => write!(f, "{:.3} ns", self.0 as f64 * 1e-3),
            1_000_000..1_000_000_000 => write!(f, "{:.3} us", self.0 as f64 * 1e-6),
            1_000_000_000..1_000_000_000_000 => write!(f, "{:.3} ms", self.0 as f64 * 1e-9),
            _ => write!(f, "{:.3} s", self.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them_and_written_so_that_nothing_is_lost() {
        assert_eq!("300ns".parse(), Ok(Span::from_nanos(300)));
        assert_eq!(" 0.5 us ".parse(), Ok(Span::from_nanos(500)));
        for text in ["0 s", "1 ps", "1500 ns", "20 ms", "100 us", "3 s"] {
            assert_eq!(text.parse::<Span>().unwrap().to_text(), text);
        }
    }

    #[test]
    fn what_is_not_a_span_is_refused_with_a_sentence() {
        let sentence = |text: &str| text.parse::<Span>().unwrap_err().to_string();
        let expected = "is not a quantity: write a number and one of ps, ns, us, ms, s, as in \"1.5 us\"";
        assert_eq!(sentence("4 parsec"), format!("\"4 parsec\" {expected}"));
        assert_eq!(sentence("4"), format!("\"4\" {expected}"));
        assert_eq!(sentence("-1 s"), "\"-1 s\" is negative or too much");
        assert_eq!(sentence("1e30 s"), "\"1e30 s\" is negative or too much");
    }
}
