//! How fast a job's own operators may work where other jobs' packets wait behind its own: a call is bounded, and many calls are too.
//!
//! A shard is one thread. An operator that takes a thousand times as long for a packet as another's is no fault of anybody's; but the packets of
//! other jobs that come meanwhile wait for it. So all such jobs of a shard have a part of its instructions together, and equal
//! parts of that, as long as other jobs are there. A packet that comes too early is dropped by name, and its rank sends it again.

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::JobId;
use crate::contract::switch::{Switch, Verdict};
use crate::contract::time::{Span, Time};

/// Instructions of operators in a second, of all jobs of a shard together: about half of what a thread gets done.
pub const EACH_SECOND: u64 = 2_000_000_000;
/// Other jobs are there if a packet of theirs came so lately.
const LATELY: Span = Span::from_millis(10);
/// What a job may have in advance: some long calls, or some thousand short ones.
const AHEAD: Span = Span::from_millis(1);

/// Whose packets come, and how many jobs have operators of their own.
#[derive(Clone, Default)]
pub struct Company {
    last: Option<JobId>,
    /// When the job changed last, of which packets came.
    mixed_at: Option<Time>,
    /// Jobs with operators of their own.
    slow: u64,
}

impl Company {
    /// A packet of a job has come.
    #[inline]
    pub fn saw(&mut self, now: Time, job: JobId) {
        if self.last != Some(job) {
            self.mixed_at = self.last.map(|_| now);
            self.last = Some(job);
        }
    }

    /// The pace of a job that comes, if it has operators of its own.
    pub fn pace_of(&mut self, machine: &mut dyn Switch) -> Option<Pace> {
        machine.take_instructions()?;
        self.slow += 1;
        Some(Pace::default())
    }

    /// A job that has a pace goes.
    pub fn leave(&mut self) {
        self.slow -= 1;
    }

    fn is_mixed(&self, now: Time) -> bool {
        self.mixed_at.is_some_and(|at| now.since(at) < LATELY)
    }
}

/// What one job's operators have taken, as the time at which all of it will have had its share (the generic cell rate algorithm).
#[derive(Clone, Copy, Default)]
pub struct Pace(Time);

impl Pace {
    /// Has the job's machine work on a packet, unless its operators have had their part.
    pub fn call(
        &mut self,
        now: Time,
        company: &Company,
        machine: &mut dyn Switch,
        call: impl FnOnce(&mut dyn Switch) -> Verdict,
    ) -> Result<Verdict, DropReason> {
        const PICOS: u64 = 1_000_000_000_000 / EACH_SECOND;
        let is_mixed = company.is_mixed(now);
        if is_mixed && self.0 > now + AHEAD {
            return Err(DropReason::TooSlow);
        }
        let verdict = call(machine);
        // Alone nothing is owed to anybody.
        let from = if is_mixed { self.0.max(now) } else { now };
        self.0 = from + Span(machine.take_instructions().unwrap_or(0).saturating_mul(PICOS * company.slow.max(1)));
        Ok(verdict)
    }
}
