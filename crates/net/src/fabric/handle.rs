//! The control plane's end of a fabric switch's thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tributary_control::fabric::Fabric;
use tributary_proto::contract::ids::{JobId, NodeId, ShardId};

use super::thread::{self, Command, FabricJob, FabricReport, FabricSite};
use crate::event_loop::answer::Answer;
use crate::event_loop::handle::Handle;
use crate::udp::UdpPort;

/// The only shard: a fabric switch has one thread.
pub const ONLY: ShardId = ShardId(0);

/// A running thread; dropping it stops the thread.
pub struct FabricHandle(Handle<Command>);

impl FabricHandle {
    /// Opens the socket and starts the thread.
    pub fn start(fabric: Arc<Fabric>, node: NodeId, socket_buffer: usize) -> io::Result<FabricHandle> {
        let udp = UdpPort::open(fabric.udp(node), socket_buffer, socket_buffer)?;
        let (name, pipeline) = (format!("switch-{}", fabric.name(node)), thread::pipeline(&fabric, node));
        let site = FabricSite::new(fabric, node, &udp);
        Handle::start(name, ONLY, udp, pipeline, site).map(FabricHandle)
    }

    /// Keeps and installs these jobs and removes all others; which of those to keep are not there.
    pub fn sync(&self, keep: Vec<JobId>, install: Vec<FabricJob>) -> Answer<Vec<JobId>> {
        self.0.ask(|reply| Command::Sync { keep, install, reply })
    }

    /// The state of the switch.
    pub fn report(&self) -> Answer<FabricReport> {
        self.0.ask(Command::Report)
    }

    /// Where it receives packets.
    pub fn udp_addr(&self) -> SocketAddr {
        self.0.udp_addr()
    }

    /// Bytes of receive buffer that the kernel granted.
    pub fn receive_buffer(&self) -> usize {
        self.0.receive_buffer()
    }
}
