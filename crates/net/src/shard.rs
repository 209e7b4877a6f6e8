//! One shard of a switch: a thread that owns a UDP socket and a [`Pipeline`](tributary_proto::contract::pipeline::Pipeline).
//!
//! The control plane holds a [`ShardHandle`] for each. Shards share nothing; every call is a message to the thread.

mod forward;
mod ports;
mod rates;
mod thread;
mod uplink;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;
use tributary_control::SwitchPlace;
use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::ids::{ChildId, JobId, ShardId};
use tributary_proto::contract::pipeline::JobReport;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

pub(crate) use self::rates::Rates;
use self::thread::{Command, ShardThread};
use crate::udp::{SocketCounters, UdpPort};
use crate::wake::Waker;

/// How a shard is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// Which part of the switch it is.
    pub shard: ShardId,
    /// The UDP address to bind; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Bytes of receive buffer to ask the kernel for, its own overhead included.
    pub receive_buffer: usize,
    /// Bytes of send buffer to ask the kernel for, its own overhead included.
    pub send_buffer: usize,
}

/// A job for one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInstall {
    /// The protocol that the job runs.
    pub protocol: &'static Protocol,
    /// Id, key, world, slots (over all shards), elements per packet, number of shards.
    pub config: JobConfig,
    /// The UDP address of each child of the switch, by its `wid`.
    pub members: Vec<SocketAddr>,
    /// The switch's address that each child takes packets from, by its `wid`.
    pub asked_at: Vec<IpAddr>,
    /// Who is behind each child.
    pub below: Vec<Below>,
    /// The switch above: the address of its shard of the same number, and the `wid` of this switch there.
    pub parent: Option<(SocketAddr, ChildId)>,
}

impl JobInstall {
    /// A job all of whose ranks are children of this switch, by rank, and know it by one address.
    pub fn of_workers(
        protocol: &'static Protocol,
        config: JobConfig,
        members: Vec<SocketAddr>,
        asked_at: IpAddr,
    ) -> JobInstall {
        let below = Below::workers(members.len() as u16);
        let asked_at = vec![asked_at; members.len()];
        JobInstall { protocol, config, members, asked_at, below, parent: None }
    }
}

/// What an operator sees of one job in one shard.
#[derive(Clone, Debug)]
pub struct ShardJob {
    /// Which job.
    pub id: JobId,
    /// The pipeline's and the machine's account.
    pub report: JobReport,
    /// Members' packets per second, over the last second or so.
    pub packets_per_s: f64,
    /// Completed sums per second, over the last second or so; `elements_per_packet` times that are the ATE/s.
    pub blocks_per_s: f64,
    /// Switches of the fabric that cannot be reached, with the ranks behind them.
    pub absent: Vec<SwitchPlace>,
}

/// What an operator sees of one shard.
#[derive(Clone, Debug)]
pub struct ShardReport {
    /// The shard's own time, in which `JobReport::last_seen` is told.
    pub now: Time,
    /// Every installed job, by ascending id.
    pub jobs: Vec<ShardJob>,
    /// Packets that belonged to no job, by reason.
    pub strangers: DropCounters,
    /// Packets whose verdict led to no port of this shard.
    pub unroutable: u64,
    /// The socket's account.
    pub socket: SocketCounters,
}

/// Why a call to a shard failed.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The socket could not be opened.
    #[error("cannot open UDP {listen}: {source}")]
    Open {
        /// Where.
        listen: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The shard's thread has ended.
    #[error("shard {0} of the switch has stopped")]
    Gone(ShardId),
    /// A job that the fabric cannot take.
    #[error("{0}")]
    Fabric(String),
    /// More members than a shard has ports.
    #[error("shard {0} of the switch has no free ports")]
    NoPorts(ShardId),
}

/// The control plane's end of one shard. Dropping it stops the shard.
pub struct ShardHandle {
    shard: ShardId,
    udp: SocketAddr,
    receive_buffer: usize,
    commands: Sender<Command>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl ShardHandle {
    /// Opens the socket and starts the thread.
    pub fn start(options: &ShardOptions) -> Result<ShardHandle, ShardError> {
        let open = || {
            let udp = UdpPort::open(options.listen, options.receive_buffer, options.send_buffer)?;
            let waker = Arc::new(Waker::new()?);
            let (sender, receiver) = mpsc::channel();
            let (addr, receive_buffer) = (udp.local_addr(), udp.counters().receive_buffer);
            let state = ShardThread::new(options.shard, udp, receiver, Arc::clone(&waker));
            let thread = Builder::new().name(format!("shard-{}", options.shard)).spawn(move || state.run())?;
            Ok(ShardHandle {
                shard: options.shard,
                udp: addr,
                receive_buffer,
                commands: sender,
                waker,
                thread: Some(thread),
            })
        };
        open().map_err(|source| ShardError::Open { listen: options.listen, source })
    }

    /// Installs a job, in place of any with its id; answers when packets will find it.
    pub fn install(&self, job: JobInstall) -> Answer<Result<(), ShardError>> {
        self.ask(|reply| Command::Install(Box::new(job), reply))
    }

    /// Takes a job out and frees its memory; false if there was none.
    pub fn remove(&self, job: JobId) -> Answer<bool> {
        self.ask(|reply| Command::Remove(job, reply))
    }

    /// The state of the shard and of its jobs.
    pub fn report(&self) -> Answer<ShardReport> {
        self.ask(Command::Report)
    }

    /// Which part of the switch it is.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The address that it receives at, with the port that the system chose.
    pub fn udp_addr(&self) -> SocketAddr {
        self.udp
    }

    /// Bytes of receive buffer that the kernel granted, as it counts them.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Stops the thread and waits for its end.
    pub fn stop(self) {}

    fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // Where the thread has ended, the reply's sender ends here, and the answer says so.
        let _ = self.commands.send(command(reply));
        self.waker.wake();
        Answer::new(self.shard, answer)
    }
}

/// What a shard will say. It carries out what it was asked in the order of asking, whether anybody waits or not.
#[must_use = "what was asked may fail"]
pub struct Answer<T> {
    shard: ShardId,
    answer: oneshot::Receiver<T>,
}

impl<T> Answer<T> {
    /// An answer that will come this way.
    pub(crate) fn new(shard: ShardId, answer: oneshot::Receiver<T>) -> Answer<T> {
        Answer { shard, answer }
    }

    /// An answer that is there already.
    pub(crate) fn ready(value: T) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // The receiver is here.
        let _ = reply.send(value);
        Answer { shard: ShardId(0), answer }
    }

    /// The answer, without holding a thread up.
    pub async fn come(self) -> Result<T, ShardError> {
        self.answer.await.map_err(|_| ShardError::Gone(self.shard))
    }

    /// The answer, on a thread that has nothing else to do; not within an asynchronous task.
    pub fn wait(self) -> Result<T, ShardError> {
        self.answer.blocking_recv().map_err(|_| ShardError::Gone(self.shard))
    }
}

impl Drop for ShardHandle {
    fn drop(&mut self) {
        // Fails only if the thread has ended already.
        let _ = self.commands.send(Command::Stop);
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(shard = self.shard.0, "the shard's thread panicked");
        }
    }
}
