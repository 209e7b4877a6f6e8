//! Leaving, for hosts that are workers and servers: no host leaves while another may lack a result that only its server
//! holds.
//!
//! A host that will submit nothing more says how many collectives it has completed ([`Word::Leaving`]), again and
//! again. Every rank that has completed as many answers ([`Word::Parted`]): it has all that it needed of this host's
//! server. A rank that is leaving needs nothing of any host, so its word counts as an answer too.

use std::collections::VecDeque;

use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::time::{Span, Time};

/// What leaving hosts say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// The sender has completed this many collectives and leaves.
    Leaving,
    /// The sender, too, has completed this many collectives.
    Parted,
}

/// Ranks that are told in one period. With more ranks, rounds are further apart.
const RANKS_IN_A_PERIOD: u64 = 64;

/// What one host knows of the other hosts' needs.
#[derive(Clone, Hash)]
pub struct Shutdown {
    own: Rank,
    period: Span,
    /// Collectives that this host's worker has completed.
    completed: u64,
    /// The worker completes nothing more: it needs no other host, and no host gets anything from it.
    broken: bool,
    /// Set once this host leaves: the time of the next round.
    due: Option<Time>,
    /// By rank: the rank needs nothing of this host any more.
    parted: Vec<bool>,
    /// The next rank to tell in this round; the round is over at `parted.len()`.
    next: usize,
    /// Every rank was told once.
    all_notified: bool,
    answers: VecDeque<(Rank, u64)>,
    /// Until when a rank that lost this host's answer may ask again.
    linger_until: Option<Time>,
}

impl Shutdown {
    /// No host leaves yet.
    pub fn new(config: &HostConfig) -> Shutdown {
        let world_size = usize::from(config.job.world_size);
        let period = config.timers.initial_rto.times(1 + world_size as u64 / RANKS_IN_A_PERIOD);
        let mut parted = vec![false; world_size];
        if let Some(own) = parted.get_mut(config.rank.index()) {
            *own = true;
        }
        Shutdown {
            own: config.rank,
            period,
            completed: 0,
            broken: false,
            due: None,
            next: world_size,
            all_notified: false,
            parted,
            answers: VecDeque::new(),
            linger_until: None,
        }
    }

    /// The worker has completed one more collective.
    pub fn complete(&mut self) {
        self.completed += 1;
    }

    /// The worker has failed.
    pub fn fail(&mut self) {
        self.broken = true;
    }

    /// The worker submits nothing more.
    pub fn begin(&mut self, now: Time) {
        if self.due.is_none() && !self.broken {
            (self.due, self.next) = (Some(now + self.period), 0);
        }
    }

    /// True if no rank needs this host any more.
    pub fn may_leave(&self) -> bool {
        self.due.is_none() || self.broken || self.parted.iter().all(|&parted| parted)
    }

    /// A word of another rank, with the number of collectives that it speaks of.
    pub fn receive(&mut self, now: Time, word: Word, rank: Rank, count: u64) -> Result<(), DropReason> {
        let parted = self.parted.get_mut(rank.index()).ok_or(DropReason::NotAMember)?;
        if word == Word::Parted {
            // The counter only grows, so an equal count cannot answer an older question.
            *parted |= self.due.is_some() && count == self.completed;
            return Ok(());
        }
        *parted = true;
        if self.broken || count <= self.completed {
            self.answers.push_back((rank, count));
        }
        self.linger_until = Some(now + self.period.times(3));
        Ok(())
    }

    /// The next word to say, its receiver, and the number of collectives.
    pub fn poll(&mut self) -> Option<(Rank, Word, u64)> {
        match self.answers.pop_front() {
            Some((rank, count)) => Some((rank, Word::Parted, count)),
            None => Some((self.next_to_notify()?, Word::Leaving, self.completed)),
        }
    }

    /// The next rank to tell. The first round goes to every rank: for a rank that is leaving, this word replaces an
    /// answer that was lost.
    fn next_to_notify(&mut self) -> Option<Rank> {
        let all_notified = self.all_notified;
        let mut left = self.next..self.parted.len();
        let next = left.find(|&rank| rank != self.own.index() && !(all_notified && self.parted[rank]));
        self.next = next.map_or(self.parted.len(), |next| next + 1);
        self.all_notified |= self.due.is_some() && next.is_none();
        next.map(|rank| Rank(rank as u16))
    }

    /// The time of [`Shutdown::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if !self.may_leave() && self.due.is_some_and(|due| due <= now) {
            (self.due, self.next) = (Some(now + self.period), 0);
        }
        self.linger_until = self.linger_until.filter(|&until| until > now);
    }

    /// When to tell the ranks again, or until when to stay for questions.
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.due.filter(|_| !self.broken)?;
        if self.may_leave() { self.linger_until } else { Some(due) }
    }
}
