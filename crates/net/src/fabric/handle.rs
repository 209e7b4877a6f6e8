//! The control plane's end of a fabric switch's thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tributary_control::fabric::FabricLayout;
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, TreeId};

use super::forwarding::{Broken, Command, FabricForwarding, FabricReport};
use super::job_table::JobSync;
use crate::shard::{Answer, Handle};
use crate::udp::UdpPort;

/// The only shard: a fabric switch has one thread.
pub const ONLY: TreeId = TreeId(0);

/// A running thread. Dropping the handle stops the thread.
pub struct FabricHandle {
    thread: Handle<Command>,
    broken: watch::Receiver<Broken>,
}

impl FabricHandle {
    /// Opens the socket, with buffers of this many bytes, and starts the thread.
    pub fn start(
        fabric: Arc<FabricLayout>,
        node: NodeId,
        [receive_buffer, send_buffer]: [usize; 2],
    ) -> io::Result<FabricHandle> {
        let udp = UdpPort::open(fabric.udp(node), receive_buffer, send_buffer)?;
        let name = format!("switch-{}", fabric.name(node));
        let (broken_here, broken) = watch::channel(Broken::new());
        let site = FabricForwarding::site(fabric, node, &udp, broken_here);
        Ok(FabricHandle { thread: Handle::start(name, ONLY, udp, site)?, broken })
    }

    /// Makes the jobs of the switch those of the controller's message. Returns the jobs to keep that the switch lacks.
    pub fn sync(&self, jobs: JobSync) -> Answer<Vec<JobId>> {
        self.thread.call(|reply| Command::Sync { jobs, reply })
    }

    /// Notes that the switch stops, for the jobs that need it. Answers how many these are.
    pub fn leave(&self) -> Answer<usize> {
        self.thread.call(Command::Leave)
    }

    /// Waits until a job can never go on, and returns the reason.
    pub async fn broken(&self, job: JobId, key: JobKey) -> String {
        let mut broken = self.broken.clone();
        let is_ours = |broken: &Broken| broken.get(&job).is_some_and(|(its, _)| *its == key);
        let why = broken.wait_for(is_ours).await.ok().map(|broken| broken[&job].1.clone());
        match why {
            Some(why) => why,
            // The thread has ended and no longer knows any job.
            None => std::future::pending().await,
        }
    }

    /// The state of the switch.
    pub fn report(&self) -> Answer<FabricReport> {
        self.thread.call(Command::Report)
    }

    /// The address where the switch receives packets.
    pub fn udp_addr(&self) -> SocketAddr {
        self.thread.udp_addr()
    }

    /// Bytes of receive buffer that the kernel granted.
    pub fn receive_buffer(&self) -> usize {
        self.thread.receive_buffer()
    }
}
