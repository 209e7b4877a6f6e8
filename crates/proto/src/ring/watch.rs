//! Finds the rank that is silent. Each rank hears only its predecessor, and the predecessor may be waiting itself.
//!
//! A rank that waits and hears nothing at all names its predecessor to its successor in a notice, which goes round the
//! ring. A rank that passes notices on is not silent. So every rank learns which rank is silent.

use crate::contract::ids::Rank;
use crate::contract::time::{Span, Time};

/// What a rank knows of the ranks before it.
#[derive(Clone, Debug, Hash)]
pub struct Watch {
    predecessor: Rank,
    successor: Rank,
    me: Rank,
    last_received: Time,
    last_originated: Time,
    /// The rank that a notice named, if no data came after the notice.
    suspect: Option<Rank>,
    /// The rank named by a notice that waits to be passed on.
    relay: Option<Rank>,
    last_relayed: Option<Time>,
}

/// A rank that hears notices waits this many periods before it blames its predecessor.
const PATIENCE: u64 = 3;
/// How often in a period the notice is sent again while the silence lasts: notices may be lost too.
const NOTICES_PER_PERIOD: u64 = 4;
/// How often in a period notices are passed on, at most. The latest notice replaces earlier ones.
const RELAYS_PER_PERIOD: u64 = 8;

impl Watch {
    /// The watch of a rank, in a job of several ranks.
    pub fn new(me: Rank, predecessor: Rank, successor: Rank) -> Watch {
        Watch {
            predecessor,
            successor,
            me,
            last_received: Time::ZERO,
            last_originated: Time::ZERO,
            suspect: None,
            relay: None,
            last_relayed: None,
        }
    }

    /// The predecessor sent data.
    pub fn on_packet(&mut self, now: Time) {
        self.last_received = now;
        self.suspect = None;
    }

    /// The predecessor sent a notice.
    pub fn on_notice(&mut self, now: Time, worker: Rank) {
        self.last_received = now;
        if worker == self.me {
            return;
        }
        self.suspect = Some(worker);
        if worker != self.successor {
            self.relay = Some(worker);
        }
    }

    /// When the predecessor's silence calls for a notice, for a collective that waits since `since`.
    pub fn due(&self, since: Time, period: Span) -> Time {
        let patience = if self.suspect.is_some() { period.times(PATIENCE) } else { period };
        self.last_received.max(since) + patience
    }

    /// When to send the next notice.
    pub fn poll_timeout(&self, since: Time, period: Span) -> Time {
        self.due(since, period).max(self.last_originated + Span(period.0 / NOTICES_PER_PERIOD))
    }

    /// Originates a notice, if one is due.
    pub fn handle_timeout(&mut self, now: Time, since: Time, period: Span) {
        if self.poll_timeout(since, period) > now {
            return;
        }
        self.last_originated = now;
        self.suspect = None;
        self.relay = (self.predecessor != self.successor).then_some(self.predecessor);
        self.last_relayed = None;
    }

    /// When the notice that waits may be sent.
    pub fn poll_relay(&self, period: Span) -> Option<Time> {
        self.relay?;
        Some(self.last_relayed.map_or(Time::ZERO, |last| last + Span(period.0 / RELAYS_PER_PERIOD)))
    }

    /// The rank to name to the successor now.
    pub fn take_relay(&mut self, now: Time, period: Span) -> Option<Rank> {
        self.poll_relay(period).filter(|&due| due <= now)?;
        self.last_relayed = Some(now);
        self.relay.take()
    }

    /// The rank to blame for a collective that waits since `since`. `mute`: the successor does not answer.
    pub fn culprit(&self, now: Time, since: Time, period: Span, mute: bool) -> Rank {
        match self.suspect {
            _ if self.due(since, period) <= now => self.predecessor,
            Some(worker) => worker,
            None if mute => self.successor,
            None => self.predecessor,
        }
    }
}
