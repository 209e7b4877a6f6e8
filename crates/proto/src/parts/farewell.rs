//! Hosts that are workers and servers part: none leaves while another may still lack a result that only its server holds.
//!
//! A host that will submit nothing more says how many collectives it has completed ([`Word::Leaving`]), again and again,
//! and everyone who has completed as many answers ([`Word::Parted`]): what they needed of this host's server, they have.
//! Who is leaving needs nothing of anybody itself, so its word counts as an answer too.

use std::collections::VecDeque;

use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::time::{Span, Time};

/// What hosts that part say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// I have completed so many collectives and leave: have you?
    Leaving,
    /// So many I have completed too.
    Parted,
}

/// Ranks that are told in one period; more of them take longer between two rounds.
const RANKS_IN_A_PERIOD: u64 = 64;

/// What one host knows of the others' needs.
#[derive(Clone, Hash)]
pub struct Farewell {
    own: Rank,
    period: Span,
    /// Collectives that this host's worker has completed.
    completed: u64,
    /// The worker completes nothing more: it needs nobody, and nobody gets anything of it.
    broken: bool,
    /// This host leaves; set with the time of the next round.
    due: Option<Time>,
    /// By rank: it needs nothing of this host any more.
    parted: Vec<bool>,
    /// The next rank to tell in this round; none is left from `parted.len()` on.
    next: usize,
    /// Everyone was told once.
    told: bool,
    answers: VecDeque<(Rank, u64)>,
    /// Until when someone may ask again who has not heard our answer.
    asked_until: Option<Time>,
}

impl Farewell {
    /// Nobody leaves yet.
    pub fn new(config: &HostConfig) -> Farewell {
        let world = usize::from(config.job.world);
        let period = config.timers.initial_rto.times(1 + world as u64 / RANKS_IN_A_PERIOD);
        let mut parted = vec![false; world];
        if let Some(own) = parted.get_mut(config.rank.index()) {
            *own = true;
        }
        Farewell {
            own: config.rank,
            period,
            completed: 0,
            broken: false,
            due: None,
            next: world,
            told: false,
            parted,
            answers: VecDeque::new(),
            asked_until: None,
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

    /// Nobody needs this host any more.
    pub fn may_leave(&self) -> bool {
        self.due.is_none() || self.broken || self.parted.iter().all(|&parted| parted)
    }

    /// A word of another rank, with the collectives that it means.
    pub fn receive(&mut self, now: Time, word: Word, rank: Rank, count: u64) -> Result<(), DropReason> {
        let parted = self.parted.get_mut(rank.index()).ok_or(DropReason::NotAMember)?;
        if word == Word::Parted {
            // An answer to an earlier life of the counter is impossible: it only grows.
            *parted |= self.due.is_some() && count == self.completed;
            return Ok(());
        }
        *parted = true;
        if self.broken || count <= self.completed {
            self.answers.push_back((rank, count));
        }
        self.asked_until = Some(now + self.period.times(3));
        Ok(())
    }

    /// The next word to say, to whom, and with how many collectives.
    pub fn poll(&mut self) -> Option<(Rank, Word, u64)> {
        match self.answers.pop_front() {
            Some((rank, count)) => Some((rank, Word::Parted, count)),
            None => Some((self.next_to_tell()?, Word::Leaving, self.completed)),
        }
    }

    /// The first round goes to everyone: to who leaves too it is the answer, if the answer was lost.
    fn next_to_tell(&mut self) -> Option<Rank> {
        let told = self.told;
        let mut left = self.next..self.parted.len();
        let next = left.find(|&rank| rank != self.own.index() && !(told && self.parted[rank]));
        self.next = next.map_or(self.parted.len(), |next| next + 1);
        self.told |= self.due.is_some() && next.is_none();
        next.map(|rank| Rank(rank as u16))
    }

    /// The time of [`Farewell::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if !self.may_leave() && self.due.is_some_and(|due| due <= now) {
            (self.due, self.next) = (Some(now + self.period), 0);
        }
        self.asked_until = self.asked_until.filter(|&until| until > now);
    }

    /// When to tell again, or until when to stay for questions.
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.due.filter(|_| !self.broken)?;
        if self.may_leave() { self.asked_until } else { Some(due) }
    }
}
