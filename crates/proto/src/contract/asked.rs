//! How often a member may ask: a question costs time of all members whose packets the switch sums.

use crate::contract::time::{Span, Time};

/// How often a member has asked. The generic cell rate algorithm: the value is the time until which the member's
/// questions have used up its share.
#[derive(Clone, Copy, Default, Hash)]
pub struct Asked(Time);

impl Asked {
    /// The mean time between two questions of one member.
    const EACH: Span = Span::from_millis(2);
    /// How far a burst of questions may run ahead of that mean: one question for each of a thousand slots.
    const AHEAD: Span = Span::from_millis(2_000);

    /// True if the member may ask now.
    pub fn again(&mut self, now: Time) -> bool {
        let may = self.0 <= now + Asked::AHEAD;
        if may {
            self.0 = self.0.max(now) + Asked::EACH;
        }
        may
    }
}
