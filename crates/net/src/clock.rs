//! The machines' time, made from the operating system's time: each driver has one origin.

use std::time::{Duration, Instant};

use tributary_proto::contract::time::{Span, Time};

/// Turns the monotonic clock into a driver's [`Time`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at [`Time::ZERO`] now.
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time::ZERO + span(self.origin.elapsed())
    }
}

/// A duration in picoseconds; saturates at 213 days.
pub fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000))
}

/// A span for the operating system, rounded up to a nanosecond, so that a sleep is never too short.
pub fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0.div_ceil(1_000))
}
