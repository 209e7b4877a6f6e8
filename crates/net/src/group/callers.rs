//! The collectives of a group that are under way, with the callers that wait for them, and the counts of collectives.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_proto::contract::host::HostEvent;
use tributary_proto::contract::ids::{OpId, Rank};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;

use super::pending::Completion;
use crate::progress::Progress;

/// All collectives for which a caller waits.
#[derive(Default)]
pub struct Callers {
    pending: BTreeMap<OpId, Call>,
    /// The number of collectives that were submitted.
    submitted: u64,
    /// The number of elements of completed collectives.
    elements_reduced: u64,
}

/// One collective.
struct Call {
    spec: Spec,
    begun_at: Time,
    completion: Arc<Completion>,
}

impl Callers {
    /// No collective is under way.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Elements of completed collectives.
    pub fn elements_reduced(&self) -> u64 {
        self.elements_reduced
    }

    /// Adds a collective for which a caller waits.
    pub fn add(&mut self, now: Time, op: OpId, spec: Spec, completion: Arc<Completion>) {
        self.submitted += 1;
        self.pending.insert(op, Call { spec, begun_at: now, completion });
    }

    /// Takes the machine's report that a collective is over. The tensor is dropped before the caller hears of it, so
    /// that nothing refers to its memory any more.
    pub fn hear(&mut self, event: HostEvent) {
        let (op, outcome) = match event {
            HostEvent::Done { op, tensor } => {
                self.elements_reduced += u64::from(tensor.spec().elements);
                drop(tensor);
                (op, Ok(()))
            }
            HostEvent::Failed { op, tensor, error } => {
                drop(tensor);
                (op, Err(error))
            }
        };
        if let Some(call) = self.pending.remove(&op) {
            call.completion.complete(outcome);
        }
    }

    /// The progress of this rank.
    pub fn progress(&self, now: Time, rank: Rank) -> Progress {
        Progress {
            rank,
            submitted: self.submitted,
            completed: self.submitted - self.pending.len() as u64,
            oldest: self.pending.values().next().map(|call| (call.spec, now.since(call.begun_at))),
        }
    }
}
