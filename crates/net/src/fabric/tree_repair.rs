//! Repairs a tree that has lost a switch or a cable under its running job, if the job's protocol can go on with empty machines
//! (PANAMA).
//!
//! The controller notices a dead cable as soon as neighbours report it. It plans other trees in place of those that used the
//! cable, and installs them at all switches at once. Each switch of the job begins with new machines. To the ranks this looks
//! like a switch that has restarted: they keep the data that may be needed once more, and go back to a number that all ranks
//! have reached. The ranks need no message, because each rank exchanges packets with its own switch for every tree, and its
//! child number at that switch stays the same.
//!
//! If there is no other route, or the controller itself has died, the job ends with an error, like jobs of other protocols
//! ([`super::tree_watch`]).

use std::sync::Arc;
use std::time::Duration;

use tributary_proto::contract::ids::JobId;

use super::api::{JobBody, SyncReply, json};
use super::job::FabricJob;
use super::peers::{SYNC, Switches, ask};
use super::planning;

/// The interval at which the controller checks the trees of a job.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// The time in which a switch must build the new trees.
const REBUILD: Duration = Duration::from_millis(1_000);

/// If a job's trees can be repaired, watches them until the job is gone.
pub async fn watch(switches: Arc<Switches>, id: JobId) {
    let mut is_stuck = false;
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        // The controller ends with its own switch.
        let Ok(report) = switches.own.report().receive().await else { return };
        let mut jobs = switches.jobs.lock().await;
        let Some(job) = jobs.all.get(&id).filter(|job| job.job.protocol.survives_tree_loss) else { return };
        let others = jobs.all.iter().filter(|&(&other, _)| other != id).map(|(_, other)| other);
        let replanned = planning::repair(&switches.fabric, job, &report.dead_cables, others);
        let was_stuck = std::mem::replace(&mut is_stuck, replanned.is_err());
        let trees = match replanned {
            Ok(None) => continue,
            Ok(Some(trees)) => trees,
            // Every switch will find the broken tree by itself, unless what is dead restarts first.
            Err(error) => {
                if !was_stuck {
                    tracing::warn!(job = %job.job.name, %error, "a tree is broken, and there is no other route");
                }
                continue;
            }
        };
        let job = FabricJob { trees, ..job.clone() };
        let roots: Vec<&str> = job.trees.iter().map(|tree| switches.fabric.name(tree.root())).collect();
        tracing::warn!(job = %job.job.name, ?roots, "a tree is broken: it is repaired over other switches");
        jobs.insert(job.clone());
        switches.rebuild(&job, &mut jobs).await;
    }
}

impl Switches {
    /// Sends a job to every living switch, whether the switch knows the job or not.
    async fn rebuild(&self, job: &FabricJob, jobs: &mut super::job_table::Jobs) {
        let mut calls = Vec::new();
        for &(node, control) in &self.others {
            let (fabric, body) = (Arc::clone(&self.fabric), json(&self.body(jobs, node, vec![JobBody::new(job)])));
            let call = async move { ask::<SyncReply>(control, SYNC, &body, &fabric.secret, REBUILD).await };
            calls.push((node, tokio::spawn(call)));
        }
        // If our own thread has ended, the next check notices that.
        let _ = self.own.sync(jobs.sync_message(vec![job.clone()])).receive().await;
        let needs = job.needs(&self.fabric);
        for (node, call) in calls.into_iter().filter(|(node, _)| needs.contains(node)) {
            let answer = call.await.unwrap_or_else(|error| Err(format!("the call ended early ({error})")));
            if let Err(why) = answer {
                tracing::warn!(switch = self.fabric.name(node), %why, job = %job.job.name, "it has not installed the repaired trees");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::time::Span;

    use super::super::crossbar::{DEAD_AFTER, HELLO_EVERY};
    use super::CHECK_EVERY;

    /// `proto` panama `faults::a_root_that_dies_and_is_planted_elsewhere_costs_no_sum_and_less_than_a_second` has half a second
    /// from a switch's death to the last new machine. A neighbour finds it dead with its next hello, and the controller learns of that with
    /// the hello after it, at the latest; then it checks. The rest is for its calls.
    #[test]
    fn the_controller_plans_within_450_ms_of_a_death_which_leaves_its_calls_50() {
        let check = Span::from_millis(CHECK_EVERY.as_millis() as u64);
        assert!(DEAD_AFTER + HELLO_EVERY.times(2) + check <= Span::from_millis(450));
    }
}
