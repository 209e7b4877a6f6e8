//! Jobs that can never go on, because one of their own operators has failed. Their members are told why: here and,
//! through the watches of switches in levels, everywhere else.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::MutexGuard;

use tributary_proto::contract::ids::JobId;

use super::ControlPlane;
use crate::shard::ShardReport;

/// Why, by job.
pub(super) type Faults = BTreeMap<JobId, String>;

impl ControlPlane {
    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().expect("nobody panics while it holds the faults")
    }

    /// A job is over. The first reason stays.
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

    /// What a shard says of its jobs' machines.
    pub(super) fn note_faults_of(&self, report: &ShardReport) {
        for job in &report.jobs {
            if let Some(fault) = &job.report.fault {
                let place = self.shards.first().map_or_else(String::new, |shard| format!(" {}", shard.udp_addr()));
                self.note_fault(job.id, format!("{fault}, at the switch{place}; the job is over"));
            }
        }
    }

    /// Returns why a job is over, as soon as it is over.
    pub async fn fault(&self, id: JobId) -> String {
        let mut turns = self.departures.subscribe();
        loop {
            turns.mark_unchanged();
            if let Some(sentence) = self.faults().get(&id) {
                return sentence.clone();
            }
            // Fails only if the control plane is gone, and then this future is too.
            let _ = turns.changed().await;
        }
    }
}
