//! How often a member may ask: what one asks costs all whose packets are summed beside it.

use crate::contract::time::{Span, Time};

/// How often a member has asked, as the time at which all its questions will have had their share (the generic cell rate
/// algorithm).
#[derive(Clone, Copy, Default, Hash)]
pub struct Asked(Time);

impl Asked {
    /// Between two questions of one member, on average.
    const EACH: Span = Span::from_millis(2);
    /// What many at once may be ahead of that: one for each of a thousand slots.
    const AHEAD: Span = Span::from_millis(2_000);

    /// True if it may ask now.
    pub fn again(&mut self, now: Time) -> bool {
        let may = self.0 <= now + Asked::AHEAD;
        if may {
            self.0 = self.0.max(now) + Asked::EACH;
        }
        may
    }
}
