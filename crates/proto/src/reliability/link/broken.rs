//! The end of a job whose hosts sum for each other: which collectives fail, with which error, and how long other ranks
//! are told.

use super::wire::Fault;
use crate::contract::config::{HostConfig, TimerConfig};
use crate::contract::host::{CollectiveError, HostEvent, SubmitError};
use crate::contract::ids::{OpId, Rank};
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::time::{Span, Time};

/// How many times a fault is sent in all.
const FAULT_TELLINGS: u32 = 3;
/// The silence that calls for a notice is this part of a collective's time.
const PERIODS_PER_DEADLINE: u64 = 8;

/// The job is over.
#[derive(Clone, Hash)]
pub struct Broken {
    /// The error with which collectives fail.
    pub error: CollectiveError,
    /// The first collective that fails.
    pub from_op: u64,
    /// A collective of this rank has already failed with the error.
    caller_knows: bool,
    /// When to send the fault again, and how many times more.
    repeat: Option<(Time, u32)>,
}

impl Broken {
    /// Collectives fail from `from_op` on. Other ranks are told now, and again, since packets may be lost.
    /// `caller_knows`: a collective of this rank has already failed.
    pub fn new(now: Time, config: &HostConfig, from_op: u64, error: CollectiveError, caller_knows: bool) -> Broken {
        let repeat = (config.job.world > 1).then(|| (now + config.timers.initial_rto, FAULT_TELLINGS - 1));
        Broken { error, from_op, caller_knows, repeat }
    }

    /// True if the collective fails.
    pub fn covers(&self, op: u64) -> bool {
        self.from_op <= op
    }

    /// Ends a collective that is submitted now. Other ranks may have heard of the fault before this rank submitted a
    /// collective that it covers. Then the first such collective fails, and later ones are refused.
    pub fn turn_away(&mut self, op: OpId, tensor: Box<dyn Tensor>) -> Result<HostEvent, SubmitError> {
        let error = self.error.clone();
        match std::mem::replace(&mut self.caller_knows, true) {
            true => Err(SubmitError::Broken(error)),
            false => Ok(HostEvent::Failed { op, tensor, error }),
        }
    }

    /// The fault as other ranks are told it. If this rank's driver has aborted, the other ranks are told that this rank
    /// is silent.
    pub fn fault(&self, me: Rank) -> Fault {
        let op = OpId(self.from_op);
        let error = match &self.error {
            CollectiveError::Aborted => CollectiveError::PeerSilent { worker: me, op },
            error => error.clone(),
        };
        Fault { op, error }
    }

    /// When to send the fault again.
    pub fn repeat_due(&self) -> Option<Time> {
        self.repeat.map(|(at, _)| at)
    }

    /// True if it is time to send the fault again.
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

/// The silence that calls for a notice in a collective: never longer than the longest retransmission timeout.
pub fn notice_period(timers: &TimerConfig, submitted_at: Time, deadline: Option<Time>) -> Span {
    let shortest = Span::from_micros(1);
    let longest = timers.max_rto.max(shortest);
    let Some(deadline) = deadline else { return longest };
    Span(deadline.since(submitted_at).0 / PERIODS_PER_DEADLINE).clamp(shortest, longest)
}
