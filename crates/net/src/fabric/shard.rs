//! The switches of a fabric in the form in which a control plane knows shards: at the controller the whole fabric is one
//! shard, and at every other switch the shard only reports.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::oneshot;
use tributary_control::admission::TreeCharge;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

use super::controller::Controller;
use super::handle::{FabricHandle, ONLY};
use super::peers::Switches;
use crate::shard::{Answer, JobInstall, Shard, ShardError, ShardReport};

impl Controller {
    /// Calls all switches in a task of its own.
    fn ask<T: Send + 'static, F: Future<Output = Option<T>> + Send + 'static>(
        &self,
        call: impl FnOnce(Arc<Switches>) -> F,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        let call = call(Arc::clone(&self.0));
        tokio::spawn(async move {
            // No answer means that our own thread has ended.
            if let Some(answer) = call.await {
                let _ = reply.send(answer);
            }
        });
        Answer::new(ONLY, answer)
    }
}

impl Shard for Controller {
    fn install(&self, job: JobInstall) -> Answer<Result<(), ShardError>> {
        self.ask(|switches| async move { Some(switches.install(job).await) })
    }

    fn resize(&self, job: JobId, slots: u16) -> Answer<bool> {
        self.ask(|switches| async move { Some(switches.resize(job, slots).await) })
    }

    fn remove(&self, job: JobId) -> Answer<bool> {
        self.ask(|switches| async move { Some(switches.remove(job).await) })
    }

    fn unshare(&self, protocol: &'static Protocol) -> Answer<bool> {
        self.ask(|switches| async move { Some(switches.unshare(protocol).await) })
    }

    fn report(&self) -> Answer<ShardReport> {
        self.ask(|switches| async move { switches.report().await })
    }

    fn tree_charge(&self, job: JobId) -> Answer<Option<TreeCharge>> {
        self.ask(|switches| async move {
            let jobs = switches.jobs.lock().await;
            Some(jobs.all.get(&job).and_then(|job| job.shape().charge()))
        })
    }

    fn installed_jobs(&self) -> Answer<Vec<JobInstall>> {
        self.ask(|switches| async move { Some(switches.discover().await) })
    }

    fn outlives(&self) -> bool {
        true
    }

    fn udp_addr(&self) -> SocketAddr {
        self.0.own.udp_addr()
    }

    fn receive_buffer(&self) -> usize {
        self.0.own.receive_buffer()
    }
}

/// The shard of a switch that is not the controller: it reports, and jobs are installed by the controller.
pub struct Follower(pub Arc<FabricHandle>);

impl Shard for Follower {
    fn install(&self, _job: JobInstall) -> Answer<Result<(), ShardError>> {
        Answer::ready(Err(ShardError::Fabric("jobs are formed at the fabric's controller".into())))
    }

    fn resize(&self, _job: JobId, _slots: u16) -> Answer<bool> {
        Answer::ready(false)
    }

    fn remove(&self, _job: JobId) -> Answer<bool> {
        Answer::ready(false)
    }

    fn unshare(&self, _protocol: &'static Protocol) -> Answer<bool> {
        Answer::ready(false)
    }

    fn report(&self) -> Answer<ShardReport> {
        let report = self.0.report();
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            if let Ok(report) = report.receive().await {
                // The call fails if nobody waits for the report any more.
                let _ = reply.send(report.shard);
            }
        });
        Answer::new(ONLY, answer)
    }

    fn udp_addr(&self) -> SocketAddr {
        self.0.udp_addr()
    }

    fn receive_buffer(&self) -> usize {
        self.0.receive_buffer()
    }
}
