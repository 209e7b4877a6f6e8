//! A switch of a fabric that is not the seat, as its own control plane sees it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::oneshot;
use tributary_control::JobName;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

use super::handle::{FabricHandle, ONLY};
use crate::control_plane::Shard;
use crate::shard::{Answer, JobInstall, ShardError, ShardReport};

/// A shard for the control plane of such a switch, which only looks.
pub struct Onlooker(pub Arc<FabricHandle>);

impl Shard for Onlooker {
    fn install(&self, _name: &JobName, _job: JobInstall) -> Answer<Result<(), ShardError>> {
        Answer::ready(Err(ShardError::Fabric("jobs are formed at the fabric's seat".into())))
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
            if let Ok(report) = report.come().await {
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
