//! What a switch's thread has beside its clock, its socket and its pipeline.
//!
//! A [`Site`] installs and removes jobs, records the progress of their ranks, and reports on them. That is the same at every
//! switch. [`Forwarding`] is what differs: a star sends packets straight from the memory into which they were received, and a
//! switch of a fabric puts them into the queues of its ports.

use std::net::SocketAddr;
use std::ops::Range;

use tributary_proto::contract::config::SharedJob;
use tributary_proto::contract::drop_reason::{DropCounters, DropReason};
use tributary_proto::contract::ids::{ChildId, JobId, NodeId, PortId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::protocol::ShardShape;
use tributary_proto::contract::switch::{PortView, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;
use tributary_proto::switch_options::SwitchOptions;

use super::jobs::{Jobs, SharedMachines};
use super::{JobInstall, ShardError, ShardReport};
use crate::os::{self, Clock};
use crate::progress::Progress;
use crate::udp::{Message, UdpPort};

/// What all kinds of switches have.
pub struct Core {
    /// The machines' time.
    pub clock: Clock,
    /// The socket.
    pub udp: UdpPort,
    /// Jobs and their machines.
    pub pipeline: Pipeline,
}

/// Where a packet that leaves a switch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The switch made the packet for itself.
    Switch,
    /// The packet came in by this port, or was made of a packet that came in by it just now.
    Packet(PortId),
    /// A machine made the packet from contributions that it had collected. The last of them came in by this port.
    Collected(PortId),
}

/// What a packet that has arrived is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketClass {
    /// A packet for the pipeline.
    Job,
    /// A member's report of a rank's progress, and the child that sent it if the switch's ports tell.
    Progress(Option<ChildId>),
    /// A packet that was already handled, or counted as dropped.
    Handled,
}

/// A job whose members have ports, as the pipeline takes it.
pub enum PreparedJob {
    /// A job with a machine of its own, or with none.
    Own(InstalledJob),
    /// A job that uses the machine that the jobs of its protocol share, and the ports of its members; see
    /// [`Pipeline::install_shared`].
    Shared(SharedJob, Vec<PortId>),
}

/// How one kind of switch forwards: by which port a packet came in, and how packets leave.
pub trait Forwarding: Sized {
    /// The commands that its thread takes.
    type Command;
    /// A job as this kind of switch installs it.
    type Job: AsRef<JobInstall>;
    /// The machines' view of its ports.
    type Ports<'a>: PortView
    where
        Self: 'a;

    /// Handles a command.
    fn handle_command(site: &mut Site<Self>, command: Self::Command, core: &mut Core);
    /// True if exactly this job is installed, and goes on as it is.
    fn has_job(&self, _job: &Self::Job) -> bool {
        false
    }
    /// Gives the members of a job their ports. After an error the job is removed.
    fn add_job(&mut self, now: Time, job: Self::Job, udp: &UdpPort) -> Result<PreparedJob, ShardError>;
    /// Removes a job and its members' ports.
    fn remove_job(&mut self, id: JobId);

    /// Notes that a message of one or more packets begins. Returns the port by which it came in.
    fn ingress(&mut self, now: Time, message: &Message, udp: &mut UdpPort) -> PortId;
    /// What a packet is. Packets that are not for jobs are handled here.
    fn classify(
        &mut self,
        now: Time,
        ingress: PortId,
        from: SocketAddr,
        packet: &mut [u8],
        ecn: Ecn,
        udp: &mut UdpPort,
    ) -> PacketClass;
    /// Sends a rank's report of its progress to the switch above this one, if the job has one.
    fn forward_progress(&mut self, _job: JobId, _packet: &[u8], _udp: &mut UdpPort) {}
    /// The machines' view of the ports now.
    fn ports(&self) -> Self::Ports<'_>;
    /// Carries out a verdict on the packet at `range` in `memory`. True if packets have to stay there until
    /// [`Forwarding::flush`].
    fn carry_out(
        &mut self,
        verdict: Verdict,
        range: Range<usize>,
        ecn: Ecn,
        origin: Origin,
        memory: &[u8],
        udp: &mut UdpPort,
    ) -> bool;
    /// Sends the packets of all verdicts since the last call, as far as they may leave. Their memory is the same.
    fn flush(&mut self, now: Time, memory: &[u8], udp: &mut UdpPort);
    /// Does, after a burst, what could not be done in the middle of it. True if machines may have made packets by that.
    fn after(&mut self, _now: Time, _core: &mut Core) -> bool {
        false
    }
    /// When the switch itself has something to do next.
    fn due(&self) -> Option<Time>;
    /// Does what the switch itself has to do by now. Called at the end of every turn.
    fn tick(&mut self, now: Time, udp: &mut UdpPort);

    /// Packets for which there was no port.
    fn unroutable(&self) -> u64;
    /// Packets that were dropped before the pipeline, by reason.
    fn rejected(&self) -> Option<&DropCounters> {
        None
    }
    /// When each member of a job was last seen, by rank, where the ports know it better than the pipeline.
    fn last_seen(&self, _job: JobId) -> Option<Vec<Option<Time>>> {
        None
    }
}

/// The jobs that a thread serves, and the way in which it forwards.
pub struct Site<F> {
    /// How packets come in and leave.
    pub forwarding: F,
    jobs: Jobs,
    shared: SharedMachines,
}

impl<F: Forwarding> Site<F> {
    /// A switch without jobs, with this number as a node, and with these options of the machines that jobs share.
    /// `elements_per_packet`: the most in any job; if there is none, what fits the longest packet.
    pub fn new(forwarding: F, node: NodeId, elements_per_packet: Option<u16>, options: SwitchOptions) -> Site<F> {
        let shared = SharedMachines::new(node, elements_per_packet, options);
        Site { forwarding, jobs: Jobs::default(), shared }
    }

    /// Installs a job, in place of any job with its id. The first job of a protocol whose jobs share a machine installs that
    /// machine, which then stays until other jobs need its memory.
    pub fn install(&mut self, job: F::Job, core: &mut Core) -> Result<(), ShardError> {
        if self.forwarding.has_job(&job) {
            return Ok(());
        }
        let JobInstall { protocol, config, below, .. } = job.as_ref();
        let (protocol, id, key, world_size) = (*protocol, config.job, config.key, config.world_size);
        let below = below.clone();
        self.remove(id, core);
        let needs = self.bytes_of(job.as_ref(), &core.pipeline);
        if !os::has_memory(needs) {
            return Err(ShardError::NoMemory(needs));
        }
        let prepared = self.forwarding.add_job(core.clock.now(), job, &core.udp);
        match prepared.inspect_err(|_| self.forwarding.remove_job(id))? {
            PreparedJob::Own(job) => core.pipeline.install(id, job),
            PreparedJob::Shared(plan, members) => {
                self.shared.install(protocol, &mut core.pipeline);
                core.pipeline.install_shared(&plan, members);
            }
        }
        self.jobs.begin(id, key, world_size, below);
        Ok(())
    }

    /// The bytes that the installation of a job takes.
    fn bytes_of(&self, JobInstall { protocol, config, members, .. }: &JobInstall, pipeline: &Pipeline) -> u64 {
        if protocol.shared.is_some() {
            return self.shared.bytes_of_new(protocol, pipeline);
        }
        (protocol.memory)(&ShardShape {
            slots: config.slots.div_ceil(config.trees.max(1)),
            elements_per_packet: config.elements_per_packet,
            children: members.len() as u16,
            world_size: config.world_size,
            levels: config.levels,
            options: &config.options,
        })
    }

    /// Gives a job another number of slots; false if it has no machine of its own here, or the system has no memory for
    /// them.
    pub fn resize(&mut self, id: JobId, slots: u16, core: &mut Core) -> bool {
        let now = core.pipeline.report(id).map_or(0, |report| report.memory_bytes as u64);
        // At worst the memory doubles, since slots are resized in powers of two.
        os::has_memory(now) && core.pipeline.resize(id, slots)
    }

    /// Removes a job and frees its memory; false if there was no such job.
    pub fn remove(&mut self, id: JobId, core: &mut Core) -> bool {
        self.jobs.remove(id);
        self.forwarding.remove_job(id);
        core.pipeline.remove(id)
    }

    /// Removes the machine that the jobs of a protocol share, none of which is installed; false if there is none.
    pub fn unshare(&mut self, protocol: u8, core: &mut Core) -> bool {
        self.shared.remove(protocol, &mut core.pipeline)
    }

    /// True if a packet is for the pipeline. If not, it was already handled or counted.
    #[inline]
    pub fn accepts(
        &mut self,
        now: Time,
        ingress: PortId,
        from: SocketAddr,
        packet: &mut [u8],
        ecn: Ecn,
        udp: &mut UdpPort,
    ) -> bool {
        match self.forwarding.classify(now, ingress, from, packet, ecn, udp) {
            PacketClass::Job => true,
            // If the packet is wrong, the pipeline counts why.
            PacketClass::Progress(child) => self.on_progress(now, child, packet, udp).is_err(),
            PacketClass::Handled => false,
        }
    }

    /// Records the progress of a rank, which may be the sender or a rank below it.
    fn on_progress(
        &mut self,
        now: Time,
        child: Option<ChildId>,
        packet: &[u8],
        udp: &mut UdpPort,
    ) -> Result<(), DropReason> {
        let common = Common::parse(packet)?;
        self.jobs.on_progress(now, &common, child, Progress::parse(packet)?)?;
        self.forwarding.forward_progress(common.job, packet, udp);
        Ok(())
    }

    /// What an operator sees.
    pub fn report(&mut self, core: &Core) -> ShardReport {
        let now = core.clock.now();
        let mut jobs = self.jobs.report(now, &core.pipeline);
        for job in &mut jobs {
            if let Some(last_seen) = self.forwarding.last_seen(job.id) {
                job.report.last_seen = last_seen;
            }
        }
        let mut rejected_packets = core.pipeline.rejected().clone();
        self.forwarding.rejected().into_iter().for_each(|rejected| rejected_packets.add(rejected));
        let (unroutable, socket) = (self.forwarding.unroutable(), *core.udp.counters());
        ShardReport { now, jobs, rejected_packets, unroutable, socket, shared: self.shared.report(&core.pipeline) }
    }
}
