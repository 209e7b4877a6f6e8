//! Two limits of a pipeline: how often a member may query, and how many instructions a job's custom operators may take
//! while packets of other jobs wait behind its own. Both are the generic cell rate algorithm: a limit is the time until
//! which its share is used up.

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::JobId;
use crate::contract::switch::{Switch, Verdict};
use crate::contract::time::{Span, Time};

/// How often one member may query. A query costs time of all members whose packets the switch sums.
#[derive(Clone, Copy, Default, Hash)]
pub struct QueryLimit(Time);

impl QueryLimit {
    /// The mean time between two queries of one member.
    const INTERVAL: Span = Span::from_millis(2);
    /// How far a burst of queries may run ahead of that mean: one query for each of a thousand slots.
    const BURST: Span = Span::from_millis(2_000);

    /// True if the member may query now; counts the query.
    pub fn try_query(&mut self, now: Time) -> bool {
        let may = self.0 <= now + QueryLimit::BURST;
        if may {
            self.0 = self.0.max(now) + QueryLimit::INTERVAL;
        }
        may
    }
}

/// Instructions a second that the custom operators of all jobs of a shard may take together: about half of what a
/// thread executes.
pub const INSTRUCTIONS_PER_SECOND: u64 = 2_000_000_000;
/// A packet of another job counts as waiting if one came within this time.
const RECENT: Span = Span::from_millis(10);
/// What a job may use in advance: a few long calls, or a few thousand short ones.
const BURST: Span = Span::from_millis(1);

/// The jobs of one thread, as far as they compete for its instructions. A packet that comes too early for its job's
/// share is dropped, and its rank sends it again; a job whose packets come alone is not limited.
#[derive(Clone, Default)]
pub struct InstructionBudget {
    last: Option<JobId>,
    /// When a packet last came from another job than the one before it.
    mixed_at: Option<Time>,
    /// Jobs with custom operators, which share the budget equally.
    limited_jobs: u64,
}

impl InstructionBudget {
    /// A packet of a job has come.
    #[inline]
    pub fn on_packet(&mut self, now: Time, job: JobId) {
        if self.last != Some(job) {
            self.mixed_at = self.last.map(|_| now);
            self.last = Some(job);
        }
    }

    /// Adds a job; returns its limit if it has custom operators.
    pub fn add_job(&mut self, machine: &dyn Switch) -> Option<InstructionLimit> {
        let used = machine.operator_status()?.instructions;
        self.limited_jobs += 1;
        Some(InstructionLimit { until: Time::ZERO, used })
    }

    /// Removes a job that has a limit.
    pub fn remove_job(&mut self) {
        self.limited_jobs -= 1;
    }

    fn is_mixed(&self, now: Time) -> bool {
        self.mixed_at.is_some_and(|at| now.since(at) < RECENT)
    }
}

/// The limit of one job's custom operators.
#[derive(Clone, Copy)]
pub struct InstructionLimit {
    /// The time until which the job's share is used up.
    until: Time,
    /// The machine's count of instructions after its last call.
    used: u64,
}

impl InstructionLimit {
    /// Has the job's machine process a packet, unless the job's share is used up.
    pub fn call(
        &mut self,
        now: Time,
        budget: &InstructionBudget,
        machine: &mut dyn Switch,
        call: impl FnOnce(&mut dyn Switch) -> Verdict,
    ) -> Result<Verdict, DropReason> {
        const PICOS: u64 = 1_000_000_000_000 / INSTRUCTIONS_PER_SECOND;
        let is_mixed = budget.is_mixed(now);
        if is_mixed && self.until > now + BURST {
            return Err(DropReason::TooSlow);
        }
        let verdict = call(machine);
        // A job that runs alone owes nothing for what it used before.
        let from = if is_mixed { self.until.max(now) } else { now };
        let total = machine.operator_status().map_or(0, |status| status.instructions);
        let taken = total.saturating_sub(self.used);
        self.used = total;
        self.until = from + Span(taken.saturating_mul(PICOS * budget.limited_jobs.max(1)));
        Ok(verdict)
    }
}
