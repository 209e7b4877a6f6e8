//! The seat, in the form in which its control plane knows shards.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::oneshot;
use tributary_control::JobName;
use tributary_control::admission::TreeCharge;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

use super::handle::ONLY;
use super::seat::Seat;
use crate::control_plane::Shard;
use crate::shard::{Answer, JobInstall, ShardError, ShardReport};

impl Seat {
    /// Asks all switches without holding the asker up.
    fn ask<T: Send + 'static>(&self, question: impl Future<Output = Option<T>> + Send + 'static) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            // No answer means that our own thread has ended; one that nobody waits for is of no use.
            if let Some(answer) = question.await {
                let _ = reply.send(answer);
            }
        });
        Answer::new(ONLY, answer)
    }
}

impl Shard for Seat {
    fn install(&self, name: &JobName, job: JobInstall) -> Answer<Result<(), ShardError>> {
        let (switches, name) = (Arc::clone(&self.0), name.clone());
        self.ask(async move { Some(switches.install(name, job).await) })
    }

    fn resize(&self, job: JobId, slots: u16) -> Answer<bool> {
        let switches = Arc::clone(&self.0);
        self.ask(async move { Some(switches.resize(job, slots).await) })
    }

    fn remove(&self, job: JobId) -> Answer<bool> {
        let switches = Arc::clone(&self.0);
        self.ask(async move { Some(switches.remove(job).await) })
    }

    fn unshare(&self, protocol: &'static Protocol) -> Answer<bool> {
        let switches = Arc::clone(&self.0);
        self.ask(async move { Some(switches.unshare(protocol).await) })
    }

    fn report(&self) -> Answer<ShardReport> {
        let switches = Arc::clone(&self.0);
        self.ask(async move { switches.report().await })
    }

    fn tree_charge(&self, job: JobId) -> Answer<Option<TreeCharge>> {
        let switches = Arc::clone(&self.0);
        self.ask(async move { Some(switches.jobs.lock().await.all.get(&job).and_then(|job| job.shape().charge())) })
    }

    fn found(&self) -> Answer<Vec<(JobName, JobInstall)>> {
        let switches = Arc::clone(&self.0);
        self.ask(async move { Some(switches.find().await) })
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
