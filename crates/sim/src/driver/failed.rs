//! Jobs whose own operator fails in a switch: every rank is told why, as a control plane does, and the job is over.
//!
//! All parts of a run on several threads must do that at the same instant. So it happens at the end of the window in
//! which the operator failed, as with jobs that come and go; ranks are told of the first failure in a window.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::time::Time;

use super::actions::Action;
use super::complaints::{Complaint, Wrong};
use super::jobs::JobIndex;
use super::own::Data;
use super::parts::{look_ahead, window_end};
use super::seat::HostSeatId;
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
    /// Failures in this part, of which other parts may not know.
    found: BTreeMap<JobIndex, Failure>,
    /// Failures that all parts know, until the ranks are told.
    known: BTreeMap<JobIndex, Failure>,
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
    pub(super) fn look_for_failures(&mut self, switch: u32) {
        for at in 0..self.failures.watched.len() {
            let index = self.failures.watched[at];
            let pipelines = &self.switches[switch as usize].pipelines;
            let Some(why) = pipelines.iter().find_map(|pipeline| pipeline.fault(JobId(index.0 + 1))) else { continue };
            let (now, is_part) = (self.fabric.now, self.fabric.is_part());
            let failure = Failure { time: now, switch, why };
            if is_part {
                note(&mut self.failures.found, index, failure);
            } else {
                let turn = look_ahead(&self.graph).map_or(Time(now.0 + 1), |look_ahead| window_end(now, look_ahead));
                self.note_failures(vec![(index, failure)], turn);
            }
        }
    }

    /// The failures in this part since the last call.
    pub fn take_failures(&mut self) -> Vec<(JobIndex, Failure)> {
        std::mem::take(&mut self.failures.found).into_iter().collect()
    }

    /// Notes failures, in any part, during the window that ends at `turn`, when ranks are told. Returns that time if
    /// there are new ones.
    pub fn note_failures(&mut self, failed: Vec<(JobIndex, Failure)>, turn: Time) -> Option<Time> {
        let mut is_news = false;
        for (index, failure) in failed {
            if self.traffic.jobs.get(index).failed.is_none() && note(&mut self.failures.known, index, failure) {
                self.plan(turn, Action::Fail(index));
                is_news = true;
            }
        }
        is_news.then_some(turn)
    }

    /// Tells every rank of a job why the job is over.
    pub(super) fn fail(&mut self, index: JobIndex) {
        self.failures.watched.retain(|&watched| watched != index);
        let Some(failure) = self.failures.known.remove(&index) else { return };
        self.traffic.jobs.get_mut(index).failed = Some(failure);
        let now = self.fabric.now;
        for number in 0..self.traffic.seats.len() {
            let seat = &mut self.traffic.seats[number];
            if seat.job != index || !seat.open || !seat.alive || !self.fabric.owns(seat.host) {
                continue;
            }
            let (id, rank, iteration) = (HostSeatId(number as u32), seat.rank, seat.submitted);
            seat.machine.abort(now);
            seat.drain.begin();
            self.drain(id);
            // For a rank that waited for nothing, the machine reports nothing.
            if self.traffic.seats[number].open {
                let complaint = Complaint { time: now, rank, iteration, what: Wrong::Over };
                self.traffic.jobs.get_mut(index).complaints.push(complaint);
                self.close(id);
            }
        }
    }
}
