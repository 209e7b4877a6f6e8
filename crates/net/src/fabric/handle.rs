//! The control plane's end of a fabric switch's thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;
use tributary_control::fabric::Fabric;
use tributary_proto::contract::ids::{JobId, NodeId, ShardId};

use super::thread::{Command, FabricJob, FabricReport, SwitchThread};
use crate::shard::Answer;
use crate::udp::UdpPort;
use crate::wake::Waker;

/// The only shard: a fabric switch has one thread.
pub const ONLY: ShardId = ShardId(0);

/// A running thread; dropping it stops the thread.
pub struct FabricHandle {
    udp: SocketAddr,
    receive_buffer: usize,
    commands: Sender<Command>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl FabricHandle {
    /// Opens the socket and starts the thread.
    pub fn start(fabric: Arc<Fabric>, node: NodeId, socket_buffer: usize) -> io::Result<FabricHandle> {
        let udp = UdpPort::open(fabric.udp(node), socket_buffer, socket_buffer)?;
        let waker = Arc::new(Waker::new()?);
        let (sender, receiver) = mpsc::channel();
        let (addr, receive_buffer) = (udp.local_addr(), udp.counters().receive_buffer);
        let name = format!("switch-{}", fabric.name(node));
        let state = SwitchThread::new(fabric, node, udp, receiver, Arc::clone(&waker));
        let thread = Builder::new().name(name).spawn(move || state.run())?;
        Ok(FabricHandle { udp: addr, receive_buffer, commands: sender, waker, thread: Some(thread) })
    }

    /// Keeps and installs these jobs and removes all others; which of those to keep are not there.
    pub fn sync(&self, keep: Vec<JobId>, install: Vec<FabricJob>) -> Answer<Vec<JobId>> {
        self.ask(|reply| Command::Sync { keep, install, reply })
    }

    /// The state of the switch.
    pub fn report(&self) -> Answer<FabricReport> {
        self.ask(Command::Report)
    }

    /// Where it receives packets.
    pub fn udp_addr(&self) -> SocketAddr {
        self.udp
    }

    /// Bytes of receive buffer that the kernel granted.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // Where the thread has ended, the reply's sender ends here, and the answer says so.
        let _ = self.commands.send(command(reply));
        self.waker.wake();
        Answer::new(ONLY, answer)
    }
}

impl Drop for FabricHandle {
    fn drop(&mut self) {
        // Fails only if the thread has ended already.
        let _ = self.commands.send(Command::Stop);
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(udp = %self.udp, "the switch's thread panicked");
        }
    }
}
