//! The machines' time: integer picoseconds since the driver's own start. Drivers tell it; machines never ask.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time, in picoseconds since the driver's start: 213 days fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A span of time, in picoseconds (one byte at 100 Gbit/s lasts 80).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    /// A span of seconds, rounded to a picosecond; negative and NaN give zero.
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

    /// `self * factor`, saturating.
    pub const fn times(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
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
