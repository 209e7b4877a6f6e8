//! The end of a job of hosts that sum for each other: which collectives fail, with what, and how long others are told of it.

use super::wire::Fault;
use crate::contract::config::{HostConfig, TimerConfig};
use crate::contract::host::{CollectiveError, HostEvent, SubmitError};
use crate::contract::ids::{OpId, Rank};
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::time::{Span, Time};

/// A fault is told so many times in all.
const FAULT_TELLINGS: u32 = 3;
/// The silence that is worth a notice is this part of a collective's time.
const PERIODS_PER_DEADLINE: u64 = 8;

/// The job is over.
#[derive(Clone, Hash)]
pub struct Broken {
    /// With what collectives fail.
    pub error: CollectiveError,
    /// The first collective that fails.
    pub from_op: u64,
    /// A collective of this rank has failed with the error.
    caller_knows: bool,
    /// When to tell it again, and how many times more.
    repeat: Option<(Time, u32)>,
}

impl Broken {
    /// Collectives fail from `from_op` on; others are told now, and again as that may be lost. `caller_knows`: one of this rank's
    /// fails already.
    pub fn new(now: Time, config: &HostConfig, from_op: u64, error: CollectiveError, caller_knows: bool) -> Broken {
        let repeat = (config.job.world > 1).then(|| (now + config.timers.initial_rto, FAULT_TELLINGS - 1));
        Broken { error, from_op, caller_knows, repeat }
    }

    /// True if the collective fails.
    pub fn covers(&self, op: u64) -> bool {
        self.from_op <= op
    }

    /// What becomes of a collective that is submitted now. The others may have heard of the trouble before this rank came to
    /// it: here it is the first that fails then, and later ones are refused.
    pub fn turn_away(&mut self, op: OpId, tensor: Box<dyn Tensor>) -> Result<HostEvent, SubmitError> {
        let error = self.error.clone();
        match std::mem::replace(&mut self.caller_knows, true) {
            true => Err(SubmitError::Broken(error)),
            false => Ok(HostEvent::Failed { op, tensor, error }),
        }
    }

    /// What others are told. What this rank's driver wanted is nothing to them: the rank is gone.
    pub fn fault(&self, me: Rank) -> Fault {
        let op = OpId(self.from_op);
        let error = match &self.error {
            CollectiveError::Aborted => CollectiveError::PeerSilent { worker: me, op },
            error => error.clone(),
        };
        Fault { op, error }
    }

    /// When to tell it again.
    pub fn repeat_due(&self) -> Option<Time> {
        self.repeat.map(|(at, _)| at)
    }

    /// True if it is time to tell it again.
    pub fn is_repeated(&mut self, now: Time, timers: &TimerConfig) -> bool {
        let Some((at, left)) = self.repeat.filter(|(at, _)| *at <= now) else { return false };
        self.repeat = (left > 1).then(|| (at + timers.initial_rto, left - 1));
        true
    }
}

/// Two ranks bring different collectives; the lower rank comes first.
pub fn mismatch(op: u64, mine: (Rank, Spec), theirs: (Rank, Spec)) -> CollectiveError {
    let ((a, a_spec), (b, b_spec)) = if mine.0 < theirs.0 { (mine, theirs) } else { (theirs, mine) };
    CollectiveError::Mismatch { a, a_spec, b, b_spec, op: OpId(op) }
}

/// The silence that is worth a notice in a collective: never longer than the longest retransmission timeout.
pub fn notice_period(timers: &TimerConfig, submitted_at: Time, deadline: Option<Time>) -> Span {
    let shortest = Span::from_micros(1);
    let longest = timers.max_rto.max(shortest);
    let Some(deadline) = deadline else { return longest };
    Span(deadline.since(submitted_at).0 / PERIODS_PER_DEADLINE).clamp(shortest, longest)
}
