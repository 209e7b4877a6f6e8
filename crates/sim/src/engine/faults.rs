//! Planned changes of the network, and what jobs have lost by them or by failing operators.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::custom_op::Data;
use super::records::JobIndex;
use crate::net::ImpairmentSpec;
use crate::topology::{LinkId, Rate};

/// One change of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A link's impairment changes; `None` heals the link.
    Impair(LinkId, Option<ImpairmentSpec>),
    /// A cable dies, both ways, or comes back.
    Cable(LinkId, bool),
    /// Packets that join a link's queue from now on leave at this rate.
    Rate(LinkId, Rate),
    /// A host or a switch dies. A switch's programs lose what they hold.
    Kill(NodeId),
    /// A switch comes back, its programs as new. (A host's memory is gone: it stays dead.)
    Revive(NodeId),
    /// Paths are computed again over the links that are up.
    Reroute,
    /// Jobs that have ended leave, and waiting jobs start.
    ScheduleJobs,
    /// The ranks of a job learn that its custom operator has failed.
    FailJob(JobIndex),
}

/// The actions of a run and their times.
#[derive(Default)]
pub(super) struct Schedule {
    actions: Vec<Action>,
    times: Vec<Time>,
    /// How many actions have been carried out.
    pub done: u64,
}

impl Schedule {
    /// Adds an action; returns its number.
    pub fn add(&mut self, time: Time, action: Action) -> u32 {
        self.actions.push(action);
        self.times.push(time);
        self.actions.len() as u32 - 1
    }

    /// The action of an event that has come.
    pub fn take(&mut self, number: u32) -> Action {
        self.done += 1;
        self.actions[number as usize]
    }

    /// True if an action is planned for a time after this.
    pub fn has_after(&self, now: Time, action: Action) -> bool {
        self.times.iter().zip(&self.actions).any(|(&time, &planned)| time > now && planned == action)
    }

    /// The time of the first action after this.
    pub fn next_after(&self, time: Time) -> Option<Time> {
        self.times.iter().copied().filter(|&planned| planned > time).min()
    }
}

/// Something that a job needs and has lost permanently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was lost.
    pub time: Time,
    /// "switch 4, the root of its tree, died".
    pub what: String,
    /// What follows from the loss, if that is not obvious.
    pub consequence: Option<String>,
}

/// What was lost permanently.
#[derive(Default)]
pub(super) struct PermanentLosses {
    /// Hosts and switches.
    pub nodes: Vec<NodeId>,
    /// Cables, by the first of their two links.
    pub cables: Vec<LinkId>,
    /// True if no rank gives up.
    pub ranks_wait: bool,
}

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
    pub watched: Vec<JobIndex>,
    /// Failures in this partition, which other partitions may not know yet.
    pub local: BTreeMap<JobIndex, Failure>,
    /// Failures that all partitions know, until the ranks get them.
    pub agreed: BTreeMap<JobIndex, Failure>,
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
pub(super) fn note_first(failures: &mut BTreeMap<JobIndex, Failure>, index: JobIndex, failure: Failure) -> bool {
    let is_new = !failures.contains_key(&index);
    let kept = failures.entry(index).or_insert_with(|| failure.clone());
    if failure < *kept {
        *kept = failure;
    }
    is_new
}
