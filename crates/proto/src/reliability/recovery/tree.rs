//! What a host remembers of each slot that waits, and of each tree: its answers, and its silences.

use crate::contract::time::{Span, Time};

#[derive(Clone, Copy, Default, Hash)]
pub(super) struct Flight {
    pub(super) sent_at: Time,
    /// The number of the last sending among those of its tree.
    pub(super) number: u64,
    pub(super) sends: u32,
    /// The tree that owns the slot.
    pub(super) tree: u16,
    pub(super) in_step: bool,
    /// When part of its answer last came: its timeout counts from then.
    pub(super) stirred_at: Time,
}

/// The last silence of a tree that led to probes.
#[derive(Clone, Copy, Default, Hash)]
pub(super) struct Silence {
    pub(super) began_at: Time,
    /// When the first probe was sent.
    pub(super) probed_at: Time,
    /// True once answers come again, until it is known whether the probes were needed.
    pub(super) is_open: bool,
    /// How many slots that were sent once, before it ended, have been answered since.
    pub(super) answered: usize,
}

#[derive(Clone, Copy, Default, Hash)]
pub(super) struct TreeFlow {
    /// How many packets were sent.
    pub(super) sent: u64,
    /// How many slots wait for an answer.
    pub(super) waiting: u32,
    /// When the last answer came, the last probe was sent, or the first packet was sent after no answer was awaited.
    pub(super) stirred_at: Time,
    /// How many probes were sent since the last answer. If any were, the tree is quiet.
    pub(super) probes: u32,
    /// When the tree was last quiet: timeouts count from then.
    pub(super) resumed_at: Time,
    /// The silence before that, or the one that lasts.
    pub(super) silence: Silence,
    /// The recent times between answers.
    pub(super) gaps: Gaps,
    /// When the last answer came to a slot that was sent before all slots that still wait after one sending: those are
    /// only queued.
    pub(super) in_order_at: Time,
}

impl TreeFlow {
    /// Nothing was lost in the last silence: it is remembered.
    pub(super) fn was_spurious(&mut self) {
        self.silence.is_open = false;
        self.gaps.remember(self.resumed_at.since(self.silence.began_at));
    }

    /// The last probes were needed, for all that is known.
    pub(super) fn was_needed(&mut self) {
        self.silence.is_open = false;
        self.gaps.halve();
    }
}

/// A silence in which nothing was lost loses one part in this many with every [`ANSWERS`] answers.
const FORGETTING: u64 = 256;
/// The longest gap of at least this many answers is known.
const ANSWERS: u32 = 128;

/// The answers of one tree.
#[derive(Clone, Copy, Default, Hash)]
pub(super) struct Gaps {
    /// The longest gap between two of the last answers, and between two of those before.
    longest: [Span; 2],
    /// The longest silence after which a timeout proved spurious. Fades with answers and halves with every timeout that
    /// was right.
    harmless: Span,
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
            self.harmless = Span(self.harmless.0 - self.harmless.0.div_ceil(FORGETTING));
        }
    }

    /// A timeout after this silence was spurious.
    pub(super) fn remember(&mut self, silence: Span) {
        self.harmless = self.harmless.max(silence);
    }

    /// A timeout sent again what was lost: earlier would have been better.
    pub(super) fn halve(&mut self) {
        self.harmless = Span(self.harmless.0 / 2);
    }

    /// The longest silence after which a timeout proved spurious, as far as it is still known.
    pub(super) fn harmless(&self) -> Span {
        self.harmless
    }

    /// The longest gap between at least the last [`ANSWERS`] answers, once there were that many.
    pub(super) fn longest(&self) -> Span {
        self.longest[0].max(self.longest[1])
    }
}
