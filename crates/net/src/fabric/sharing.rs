//! The jobs of a fabric divide the memory of its switches anew as jobs come and go, if their protocols can do so.
//!
//! The seat's control plane divides the memory as if all jobs ran over one switch. Each switch of a job gives the job's
//! trees their new room when it is told. Results carry the least room on the way, so that switches need not be told at
//! the same time. What the jobs of a protocol share, and no job uses any more, gives way to others in the same manner.

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

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

    /// Gives up what the jobs of a protocol share, at every switch; false if nothing was shared. A switch that does not
    /// answer now is told with the next look.
    pub(super) async fn unshare(&self, protocol: &'static Protocol) -> bool {
        let mut jobs = self.jobs.lock().await;
        let was = jobs.shared.remove(&protocol.code).is_some();
        for (node, answer) in self.sync(&mut jobs, PROMPT).await {
            if let Err(why) = answer {
                tracing::debug!(switch = self.fabric.name(node), %why, "it will hear later what jobs share no more");
            }
        }
        was
    }
}
