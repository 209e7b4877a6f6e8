//! The jobs of a fabric divide the memory of its switches anew as jobs come and go, if their protocols can do so.
//!
//! The seat's control plane divides the memory as if all jobs ran over one switch. Each switch gives the trees of a job
//! their new room when the seat tells it. Results carry the least room on their way, so the switches need not be told
//! at the same time.

use tributary_proto::contract::ids::JobId;

use super::seat::{PROMPT, Switches};

impl Switches {
    /// Gives a job another number of slots at every switch. A switch that does not answer now is told with the next
    /// look. False if there is no such job.
    pub(super) async fn resize(&self, id: JobId, slots: u16) -> bool {
        let mut jobs = self.jobs.lock().await;
        let Some(job) = jobs.all.get_mut(&id) else { return false };
        let config = &mut job.job.config;
        config.slots = slots - slots % config.trees;
        for (node, answer) in self.sync(&mut jobs, PROMPT).await {
            if let Err(why) = answer {
                tracing::debug!(switch = self.fabric.name(node), %why, "it will hear later what a job has now");
            }
        }
        true
    }
}
