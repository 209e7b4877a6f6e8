//! Plants a tree that has lost a switch or a cable anew under its running job, if the job's protocol can go on with
//! machines that know nothing.
//!
//! The seat notices a dead cable as soon as neighbours call it dead. It plans other trees in place of those that used
//! the cable, and tells all switches at once. Each switch of the job begins with new machines. To the ranks this looks
//! like a switch that was started again: they keep the data that may be needed once more, and go back to a place that
//! all ranks have reached. The ranks need no message, because each rank's own switch speaks for every tree, and the
//! rank's place at that switch stays the same.
//!
//! If there is no other way, or the seat itself has died, the job ends with an error, like jobs of other protocols
//! ([`super::job`]).

use std::sync::Arc;
use std::time::Duration;

use tributary_proto::contract::ids::JobId;

use super::api::{JobBody, SyncReply, json};
use super::job::FabricJob;
use super::planning;
use super::seat::{SYNC, Switches, ask};

/// The interval at which the seat checks the trees of a job.
const LOOK: Duration = Duration::from_millis(50);
/// The time in which a switch must plant a tree.
const PLANT: Duration = Duration::from_millis(1_000);

/// If a job's trees can be planted anew, watches them until the job is gone.
pub async fn watch(switches: Arc<Switches>, id: JobId) {
    let mut is_stuck = false;
    loop {
        tokio::time::sleep(LOOK).await;
        // The seat ends with its own switch.
        let Ok(report) = switches.own.report().come().await else { return };
        let mut jobs = switches.jobs.lock().await;
        let Some(job) = jobs.all.get(&id).filter(|job| job.job.protocol.replants) else { return };
        let others = jobs.all.iter().filter(|&(&other, _)| other != id).map(|(_, other)| other);
        let replanned = planning::repair(&switches.fabric, job, &report.dead_cables, others);
        let was_stuck = std::mem::replace(&mut is_stuck, replanned.is_err());
        let trees = match replanned {
            Ok(None) => continue,
            Ok(Some(trees)) => trees,
            // Every switch will find the tree broken by itself, and say so, unless what is dead is started again first.
            Err(error) => {
                if !was_stuck {
                    tracing::warn!(job = %job.name, %error, "a tree has lost its way, and there is no other");
                }
                continue;
            }
        };
        let job = FabricJob { trees, ..job.clone() };
        let roots: Vec<&str> = job.trees.iter().map(|tree| switches.fabric.name(tree.root())).collect();
        tracing::warn!(job = %job.name, ?roots, "a tree has lost its way: trees are planted anew");
        jobs.insert(job.clone());
        switches.plant(&job, &mut jobs).await;
    }
}

impl Switches {
    /// Sends a job to every living switch, whether the switch knows the job or not.
    async fn plant(&self, job: &FabricJob, jobs: &mut super::ledger::Jobs) {
        let mut asked = Vec::new();
        for &(node, control) in &self.others {
            let (fabric, body) = (Arc::clone(&self.fabric), json(&self.body(jobs, node, vec![JobBody::new(job)])));
            let call = async move { ask::<SyncReply>(control, SYNC, &body, &fabric.secret, PLANT).await };
            asked.push((node, tokio::spawn(call)));
        }
        // If our own thread has ended, the next look notices that.
        let _ = self.own.sync(jobs.told(vec![job.clone()])).come().await;
        let needs = job.needs(&self.fabric);
        for (node, call) in asked.into_iter().filter(|(node, _)| needs.contains(node)) {
            let answer = call.await.unwrap_or_else(|error| Err(format!("the call ended early ({error})")));
            if let Err(why) = answer {
                tracing::warn!(switch = self.fabric.name(node), %why, job = %job.name, "it has not planted the trees anew");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::time::Span;

    use super::super::crossbar::{DEAD_AFTER, HELLO_EVERY};
    use super::LOOK;

    /// `proto` panama `faults::a_root_that_dies_and_is_planted_elsewhere_costs_no_sum_and_less_than_a_second` has half a second
    /// from a switch's death to the last new machine. A neighbour finds it dead when it greets, and the seat hears of that with the
    /// next greeting, at the latest; then it looks. The rest is for its calls.
    #[test]
    fn the_seat_plans_within_450_ms_of_a_death_which_leaves_its_calls_50() {
        let look = Span::from_millis(LOOK.as_millis() as u64);
        assert!(DEAD_AFTER + HELLO_EVERY.times(2) + look <= Span::from_millis(450));
    }
}
