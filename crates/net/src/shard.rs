//! One shard of a switch: a thread that owns a UDP socket and a pipeline.
//!
//! The control plane holds a [`ShardHandle`] for each shard. Shards share nothing; every call is a message to the
//! thread.
//!
//! - The thread: `event_loop` sleeps, receives, and runs timers; a `burst` is what one call has received, and `handle` is the
//!   control plane's end.
//! - `site`, the jobs that a thread serves, and `Forwarding`, what differs between kinds of switches; `jobs`, what is kept of
//!   each job.
//! - `star`, the forwarding of a standalone switch, by its `ports` and its `forwarder`. A switch of a fabric has its own
//!   ([`crate::fabric`]).

mod burst;
mod event_loop;
mod forwarder;
mod handle;
mod jobs;
mod ports;
mod site;
mod star;
#[cfg(test)]
pub(crate) mod testing;

use std::io;
use std::net::{IpAddr, SocketAddr};

use tributary_control::JobName;
use tributary_control::admission::TreeCharge;
use tributary_control::levels::SwitchRanks;
use tributary_control::servers::JobServer;
use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::ids::{ChildId, JobId, PortSet, TreeId};
use tributary_proto::contract::pipeline::JobReport;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::SharedReport;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::switch_options::SwitchOptions;

pub(crate) use self::handle::Handle;
pub use self::handle::{Answer, Stopped};
pub(crate) use self::site::{Core, Forwarding, Origin, PacketClass, PreparedJob, Site};
use self::star::{Command, Star};
use crate::progress::{Progress, RankProgress};
use crate::udp::{PortSharing, SocketCounters, UdpPort};

/// How a shard is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// The number of the shard.
    pub shard: TreeId,
    /// The UDP address to bind; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Bytes of receive buffer to ask the kernel for, its own overhead included.
    pub receive_buffer: usize,
    /// Bytes of send buffer to ask the kernel for, its own overhead included.
    pub send_buffer: usize,
    /// The incarnation of this switch's process, for the parent switch, if there is one.
    pub incarnation: Option<u64>,
    /// The options of the machines that jobs share.
    pub switch_options: SwitchOptions,
}

/// A job for one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInstall {
    /// The job's name.
    pub name: JobName,
    /// The protocol that the job runs.
    pub protocol: &'static Protocol,
    /// Id, key, world size, slots that the switch has for the job now (over all shards), elements per packet, number of
    /// shards.
    pub config: JobConfig,
    /// The slots on which the job's members have agreed: the most that it may ever have.
    pub most_slots: u16,
    /// The UDP address of each child of the switch, by its `wid`.
    pub members: Vec<SocketAddr>,
    /// The UDP ports of each child's further cores, by its `wid`. Children beyond the end have one core.
    pub core_ports: Vec<Vec<u16>>,
    /// The switch's address from which each child takes packets, by the child's `wid`.
    pub local_ip: Vec<IpAddr>,
    /// The worker or switch behind each child.
    pub below: Vec<Below>,
    /// The job's servers that are processes of their own, by number, if their packets pass the switch.
    pub servers: Vec<JobServer>,
    /// For fabrics: the number of aggregation trees, if some rank insists on one.
    pub trees: Option<u16>,
    /// The parent switch: the address of its shard of the same number, and the `wid` of this switch there.
    pub parent: Option<(SocketAddr, ChildId)>,
}

impl JobInstall {
    /// A job whose ranks are all children of this switch, by rank, and know the switch by one address.
    pub fn of_workers(
        name: JobName,
        protocol: &'static Protocol,
        config: JobConfig,
        members: Vec<SocketAddr>,
        local_ip: IpAddr,
    ) -> JobInstall {
        let below = Below::workers(members.len() as u16);
        let (local_ip, most_slots) = (vec![local_ip; members.len()], config.slots);
        let servers = Vec::new();
        let (core_ports, trees, parent) = (Vec::new(), None, None);
        JobInstall { name, protocol, config, most_slots, members, core_ports, local_ip, below, servers, trees, parent }
    }
}

impl AsRef<JobInstall> for JobInstall {
    fn as_ref(&self) -> &JobInstall {
        self
    }
}

/// What an operator sees of one job in one shard.
#[derive(Clone, Debug)]
pub struct ShardJob {
    /// The job's id.
    pub id: JobId,
    /// The counters of the pipeline and of the machine.
    pub report: JobReport,
    /// Members' packets per second, over the last second or so.
    pub packets_per_s: f64,
    /// Completed sums per second, over the last second or so; times `elements_per_packet` these are the ATE/s.
    pub blocks_per_s: f64,
    /// Switches of the fabric that cannot be reached, with the ranks behind them.
    pub absent: Vec<SwitchRanks>,
    /// How far each rank is in its collectives.
    pub progress: RankProgress,
}

/// What an operator sees of one shard.
#[derive(Clone, Debug)]
pub struct ShardReport {
    /// The shard's own time, in which `JobReport::last_seen` is given.
    pub now: Time,
    /// Every installed job, by ascending id.
    pub jobs: Vec<ShardJob>,
    /// Packets that belonged to no job, by reason.
    pub rejected_packets: DropCounters,
    /// Packets whose verdict led to no port of this shard.
    pub unroutable: u64,
    /// The socket's counters.
    pub socket: SocketCounters,
    /// What jobs share here: the protocol's code, the state, and bytes.
    pub shared: Vec<(u8, SharedReport, usize)>,
}

impl ShardReport {
    /// The reports of a job's ranks about their collectives, each with its age at the time of this report.
    pub(crate) fn progress_of(&self, job: Option<JobId>) -> impl Iterator<Item = (Span, Progress)> + Clone {
        let jobs = self.jobs.iter().filter(move |shard_job| Some(shard_job.id) == job);
        jobs.flat_map(|job| job.progress.iter().map(|&(at, progress)| (self.now.since(at), progress)))
    }
}

/// Why a call to a shard failed.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The socket could not be opened.
    #[error("cannot open UDP {listen}: {source}")]
    Open {
        /// The address.
        listen: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The shard's thread has ended.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The fabric cannot take the job.
    #[error("{0}")]
    Fabric(String),
    /// There are more members than a shard has ports.
    #[error("shard {0} of the switch has no free ports")]
    NoPorts(TreeId),
    /// The system has no memory for the job's slots.
    #[error("the machine has no memory for the {} MiB that it needs here: give the switch less --memory than the machine has", .0 >> 20)]
    NoMemory(u64),
    /// There are more members than a shared machine can distinguish.
    #[error(
        "{0} distinguishes the first {most} workers of a switch, those of all its jobs together, and they are there: wait \
         until a job has ended, or start another switch", most = PortSet::CAPACITY
    )]
    Crowded(&'static str),
}

/// The interface of a shard, or of what stands for one. Answers come in the order of the calls.
pub trait Shard: Send + Sync {
    /// Installs a job, in place of any job with its id; answers once packets will find the job.
    fn install(&self, job: JobInstall) -> Answer<Result<(), ShardError>>;
    /// Gives a job another number of slots in this shard; false if the job has no machine of its own there. Memory that this
    /// frees is there for a job that is installed next.
    fn resize(&self, job: JobId, slots: u16) -> Answer<bool>;
    /// Removes a job and frees its memory; false if there was no such job.
    fn remove(&self, job: JobId) -> Answer<bool>;
    /// Frees what the jobs of a protocol share, none of which is there; false if nothing was shared.
    fn unshare(&self, protocol: &'static Protocol) -> Answer<bool>;
    /// Asks, at most `questions` times, whether the process with this incarnation, which asked at our address
    /// `local_ip`, is at a UDP address. A fabric does not ask: its file says which host is behind which cable.
    fn challenge(&self, _peer: SocketAddr, _local_ip: IpAddr, _incarnation: u64, _questions: u32) -> Answer<bool> {
        Answer::ready(true)
    }
    /// The state of the shard and of its jobs.
    fn report(&self) -> Answer<ShardReport>;
    /// The jobs that run in the shard although this control plane has not installed them, because it has restarted.
    fn installed_jobs(&self) -> Answer<Vec<JobInstall>> {
        Answer::ready(Vec::new())
    }
    /// What a job holds of a fabric's switches, once its trees are planned; `None` if it is charged for none of them
    /// by itself.
    fn tree_charge(&self, _job: JobId) -> Answer<Option<TreeCharge>> {
        Answer::ready(None)
    }
    /// True if the shard's jobs outlive this control plane, which finds them again.
    fn outlives(&self) -> bool {
        false
    }
    /// The address at which the shard receives, with the port that the system chose.
    fn udp_addr(&self) -> SocketAddr;
    /// Bytes of receive buffer that the kernel granted, as it counts them.
    fn receive_buffer(&self) -> usize;
    /// Lets the next program of this switch bind the same address, or no longer.
    fn set_shared(&self, _shared: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Leaves packets of these jobs to the earlier program of this switch, which has the address too, and none else.
    fn leave_to_earlier(&self, _jobs: &[JobId]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The control plane's end of one shard of a star. Dropping it stops the shard.
pub struct ShardHandle {
    handle: Handle<Command>,
    sharing: PortSharing,
}

impl ShardHandle {
    /// Opens the socket and starts the thread.
    pub fn start(options: &ShardOptions) -> Result<ShardHandle, ShardError> {
        ShardHandle::start_as(options, false)
    }

    /// The same; `beside`: an earlier program of this switch has the address too.
    pub(crate) fn start_as(options: &ShardOptions, beside: bool) -> Result<ShardHandle, ShardError> {
        let &ShardOptions { shard, listen, receive_buffer, send_buffer, incarnation, ref switch_options } = options;
        let open = || {
            let udp = UdpPort::open_as(listen, receive_buffer, send_buffer, beside)?;
            let (sharing, site) = (PortSharing::of(&udp)?, Star::site(shard, incarnation, switch_options.clone()));
            Ok(ShardHandle { handle: Handle::start(format!("shard-{shard}"), shard, udp, site)?, sharing })
        };
        open().map_err(|source| ShardError::Open { listen, source })
    }

    /// The number of the shard.
    pub fn shard(&self) -> TreeId {
        self.handle.shard()
    }

    /// Stops the thread and waits for its end.
    pub fn stop(self) {}
}

impl Shard for ShardHandle {
    fn install(&self, job: JobInstall) -> Answer<Result<(), ShardError>> {
        self.handle.call(|reply| Command::Install(Box::new(job), reply))
    }

    fn resize(&self, job: JobId, slots: u16) -> Answer<bool> {
        self.handle.call(|reply| Command::Resize(job, slots, reply))
    }

    fn remove(&self, job: JobId) -> Answer<bool> {
        self.handle.call(|reply| Command::Remove(job, reply))
    }

    fn unshare(&self, protocol: &'static Protocol) -> Answer<bool> {
        self.handle.call(|reply| Command::Unshare(protocol, reply))
    }

    fn challenge(&self, peer: SocketAddr, local_ip: IpAddr, incarnation: u64, questions: u32) -> Answer<bool> {
        self.handle.call(|reply| Command::Challenge { peer, local_ip, incarnation, questions, reply })
    }

    fn report(&self) -> Answer<ShardReport> {
        self.handle.call(Command::Report)
    }

    fn udp_addr(&self) -> SocketAddr {
        self.handle.udp_addr()
    }

    fn receive_buffer(&self) -> usize {
        self.handle.receive_buffer()
    }

    fn set_shared(&self, shared: bool) -> io::Result<()> {
        self.sharing.set_shared(shared)
    }

    fn leave_to_earlier(&self, jobs: &[JobId]) -> io::Result<()> {
        self.sharing.leave_to_earlier(jobs)
    }
}
