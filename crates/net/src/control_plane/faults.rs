//! Jobs that can never go on because one of their own operators has failed. Their members learn the reason: here, and,
//! through the watches of switches in levels, at all other switches.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::MutexGuard;

use tributary_proto::contract::ids::JobId;

use super::ControlPlane;
use crate::shard::ShardReport;

/// The reason for each job that is over.
pub(super) type Faults = BTreeMap<JobId, String>;

impl ControlPlane {
    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().expect("nobody panics while it holds the faults")
    }

    /// Notes that a job is over. If there is a reason already, that reason stays.
    pub fn note_fault(&self, id: JobId, sentence: String) {
        if let Entry::Vacant(place) = self.faults().entry(id) {
            tracing::warn!(id = id.0, sentence, "job failed");
            place.insert(sentence);
        } else {
            return;
        }
        self.departures.send_replace(());
        self.changed.notify_one();
    }

    /// Notes the faults that a shard reports of its jobs' machines.
    pub(super) fn note_faults_of(&self, report: &ShardReport) {
        for job in &report.jobs {
            if let Some(fault) = &job.report.fault {
                let place = self.shards.first().map_or_else(String::new, |shard| format!(" {}", shard.udp_addr()));
                self.note_fault(job.id, format!("{fault}, at the switch{place}; the job is over"));
            }
        }
    }

    /// Waits until a job is over, and returns the reason.
    pub async fn fault(&self, id: JobId) -> String {
        let mut turns = self.departures.subscribe();
        loop {
            turns.mark_unchanged();
            if let Some(sentence) = self.faults().get(&id) {
                return sentence.clone();
            }
            // The call fails only if the control plane is gone. Then this future is dropped too.
            let _ = turns.changed().await;
        }
    }
}
