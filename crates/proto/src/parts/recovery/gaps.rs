//! How long it is from one answer to the next while something is awaited.

use crate::contract::time::{Span, Time};

/// So many answers at least make it known.
const ANSWERS: u32 = 128;

/// The answers of one tree.
#[derive(Clone, Copy, Default, Hash)]
pub(super) struct Gaps {
    /// The longest times between two of the last answers, and of those before.
    longest: [Span; 2],
    /// How many the last ones are.
    answers: u32,
    /// The last one, if something was awaited ever since.
    answered_at: Option<Time>,
}

impl Gaps {
    /// Something is awaited, where nothing was: the time to the first answer tells when the other ranks came.
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

    /// The longest of at least the last so many answers.
    pub(super) fn longest(&self) -> Span {
        self.longest[0].max(self.longest[1])
    }
}
