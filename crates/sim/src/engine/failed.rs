//! Jobs whose custom operator fails in a switch: every rank gets the reason, as a control plane would send it, and the job
//! is over.
//!
//! All partitions of a run on several threads must do that at the same instant. So it happens at the end of the window in
//! which the operator failed; ranks get the first failure in a window.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::time::Time;

use super::actions::Action;
use super::custom_op::Data;
use super::endpoint::EndpointId;
use super::errors::{JobError, JobErrorKind};
use super::jobs::JobIndex;
use super::partitions::{lookahead, window_end};
use super::simulation::Simulation;

/// A job's operator has failed in a switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// When.
    pub time: Time,
    /// The switch.
    pub switch: u32,
    /// A sentence that names the operator.
    pub why: String,
}

/// Jobs whose operators may fail, and those whose operators have failed.
#[derive(Default)]
pub(super) struct Failures {
    /// Jobs whose operators switches call.
    watched: Vec<JobIndex>,
    /// Failures in this partition, which other partitions may not know yet.
    local: BTreeMap<JobIndex, Failure>,
    /// Failures that all partitions know, until the ranks get them.
    agreed: BTreeMap<JobIndex, Failure>,
}

impl Failures {
    /// Watches a job that may have an operator that switches call.
    pub fn watch(&mut self, index: JobIndex, data: Option<Data>) {
        if data == Some(Data::Real) {
            self.watched.push(index);
        }
    }
}

/// Keeps the first failure of each job.
fn note(failures: &mut BTreeMap<JobIndex, Failure>, index: JobIndex, failure: Failure) -> bool {
    let is_new = !failures.contains_key(&index);
    let kept = failures.entry(index).or_insert_with(|| failure.clone());
    if failure < *kept {
        *kept = failure;
    }
    is_new
}

impl Simulation {
    /// Checks whether an operator has failed in a switch that has just worked.
    #[inline]
    pub(super) fn check_operators(&mut self, switch: u32) {
        for at in 0..self.failures.watched.len() {
            let index = self.failures.watched[at];
            let pipelines = &self.switches[switch as usize].pipelines;
            let Some(why) = pipelines.iter().find_map(|pipeline| pipeline.fault(JobId(index.0 + 1))) else { continue };
            let (now, is_partitioned) = (self.fabric.now, self.fabric.is_partitioned());
            let failure = Failure { time: now, switch, why };
            if is_partitioned {
                note(&mut self.failures.local, index, failure);
            } else {
                let end = lookahead(&self.graph).map_or(Time(now.0 + 1), |lookahead| window_end(now, lookahead));
                self.note_failures(vec![(index, failure)], end);
            }
        }
    }

    /// The failures in this partition since the last call.
    pub fn take_failures(&mut self) -> Vec<(JobIndex, Failure)> {
        std::mem::take(&mut self.failures.local).into_iter().collect()
    }

    /// Notes failures, in any partition, during the window that ends at `end`, when ranks get them. Returns that time if
    /// there are new ones.
    pub fn note_failures(&mut self, failed: Vec<(JobIndex, Failure)>, end: Time) -> Option<Time> {
        let mut any_new = false;
        for (index, failure) in failed {
            if self.traffic.jobs.get(index).failed.is_none() && note(&mut self.failures.agreed, index, failure) {
                self.plan(end, Action::FailJob(index));
                any_new = true;
            }
        }
        any_new.then_some(end)
    }

    /// Aborts every rank of a job whose operator has failed.
    pub(super) fn fail_job(&mut self, index: JobIndex) {
        self.failures.watched.retain(|&watched| watched != index);
        let Some(failure) = self.failures.agreed.remove(&index) else { return };
        self.traffic.jobs.get_mut(index).failed = Some(failure);
        let now = self.fabric.now;
        for number in 0..self.traffic.endpoints.len() {
            let endpoint = &mut self.traffic.endpoints[number];
            if endpoint.job != index || !endpoint.open || !endpoint.alive || !self.fabric.owns(endpoint.host) {
                continue;
            }
            let (id, rank, iteration) = (EndpointId(number as u32), endpoint.rank, endpoint.submitted);
            endpoint.machine.abort(now);
            endpoint.drain.begin();
            self.drain(id);
            // The machine of a rank that waited for no collective reports nothing.
            if self.traffic.endpoints[number].open {
                let error = JobError { time: now, rank, iteration, kind: JobErrorKind::OperatorFailed };
                self.traffic.jobs.get_mut(index).errors.push(error);
                self.finish_endpoint(id);
            }
        }
    }
}
