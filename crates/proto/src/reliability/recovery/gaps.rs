//! The time from one answer to the next while an answer is awaited.

use crate::contract::time::{Span, Time};

/// The longest gap of at least this many answers is known.
const ANSWERS: u32 = 128;

/// The answers of one tree.
#[derive(Clone, Copy, Default, Hash)]
pub(super) struct Gaps {
    /// The longest gap between two of the last answers, and between two of those before.
    longest: [Span; 2],
    /// How many the last answers are.
    answers: u32,
    /// When the last answer came, if an answer was awaited ever since.
    answered_at: Option<Time>,
}

impl Gaps {
    /// The tree begins to await an answer. The time to the first answer does not count: it depends on when other ranks
    /// come.
    pub(super) fn begin(&mut self) {
        self.answered_at = None;
    }

    /// An answer has come.
    pub(super) fn answered(&mut self, now: Time) {
        if let Some(last) = self.answered_at.replace(now) {
            self.longest[0] = self.longest[0].max(now.since(last));
        }
        self.answers += 1;
        if self.answers == ANSWERS {
            (self.answers, self.longest) = (0, [Span::ZERO, self.longest[0]]);
        }
    }

    /// The longest gap between at least the last [`ANSWERS`] answers, once there were that many.
    pub(super) fn longest(&self) -> Span {
        self.longest[0].max(self.longest[1])
    }
}
