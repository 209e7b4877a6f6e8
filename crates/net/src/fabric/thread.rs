//! The loop of a fabric switch: packets in, through the pipeline, into queues, out at the ports' rates.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use tokio::sync::oneshot;
use tributary_control::JobName;
use tributary_control::fabric::Fabric;
use tributary_proto::collective::values::Values;
use tributary_proto::contract::config::{FlushTimeout, SharedSwitchConfig};
use tributary_proto::contract::drop_reason::{DropCounters, DropReason};
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::switch::{ArrayReport, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;
use tributary_proto::protocols;

use super::crossbar::{Crossbar, HELLO_EVERY, PortReport};
use super::own;
use crate::clock::{self, Clock};
use crate::shard::{JobInstall, Rates, ShardJob, ShardReport};
use crate::udp::{Inbox, UdpPort};
use crate::wake::{self, Waker};

/// What a handle asks of the thread, with the way back for the answer.
pub enum Command {
    /// Install these jobs, keep those of these ids, remove all others. We know the running jobs after that.
    Sync {
        keep: Vec<JobId>,
        install: Vec<FabricJob>,
        reply: oneshot::Sender<Vec<JobId>>,
    },
    Report(oneshot::Sender<FabricReport>),
    Stop,
}

/// A job as a fabric switch has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricJob {
    /// Its name.
    pub name: JobName,
    /// Protocol, sizes, key, and the UDP address of each member.
    pub job: JobInstall,
    /// The host of each member, by rank.
    pub hosts: Vec<NodeId>,
}

/// What an operator sees of a fabric switch beyond what every switch has.
#[derive(Clone, Debug)]
pub struct FabricReport {
    /// What every switch has.
    pub shard: ShardReport,
    /// It knows the running jobs.
    pub ready: bool,
    /// Its ports, by number.
    pub ports: Vec<PortReport>,
    /// The memory that all jobs share, and its bytes.
    pub array: Option<(ArrayReport, usize)>,
    /// The installed jobs.
    pub installed: Vec<FabricJob>,
}

/// The state of a running fabric switch. Nothing of it is shared.
pub struct SwitchThread {
    clock: Clock,
    udp: UdpPort,
    pipeline: Pipeline,
    crossbar: Crossbar,
    jobs: BTreeMap<JobId, (FabricJob, Rates)>,
    /// Packets from no port of ours, or from the wrong socket behind one.
    strangers: DropCounters,
    ready: bool,
    next_hello: Time,
    inbox: Inbox,
    outbox: Box<[u8]>,
    commands: Receiver<Command>,
    waker: Arc<Waker>,
}

/// The machine that all jobs of a protocol share here, as the fabric's file says.
fn shared_config(fabric: &Fabric, node: NodeId) -> SharedSwitchConfig {
    SharedSwitchConfig {
        node,
        descriptors: fabric.descriptors,
        partitions: fabric.partitions,
        elements_per_packet: fabric.elements_per_packet,
        timeout: match fabric.adaptive_timeout {
            None => FlushTimeout::Fixed(fabric.timeout),
            Some(least) => FlushTimeout::Adaptive { least, most: fabric.timeout },
        },
        lease: fabric.descriptor_lease,
    }
}

impl SwitchThread {
    /// A switch without jobs, which counts as dead until it is told which there are.
    pub fn new(
        fabric: Arc<Fabric>,
        node: NodeId,
        udp: UdpPort,
        commands: Receiver<Command>,
        waker: Arc<Waker>,
    ) -> SwitchThread {
        let mut pipeline = Pipeline::default();
        let config = shared_config(&fabric, node);
        for protocol in protocols::ALL.iter().copied().filter(|protocol| protocol.placement == Placement::EveryHop) {
            if let Some(machine) = protocol.shared_switch(Values::Elements, &config) {
                pipeline.share(protocol.code, machine);
            }
        }
        let crossbar = Crossbar::new(fabric, node, &udp);
        SwitchThread {
            clock: Clock::start(),
            udp,
            pipeline,
            crossbar,
            jobs: BTreeMap::new(),
            strangers: DropCounters::default(),
            ready: false,
            next_hello: Time::ZERO,
            inbox: Inbox::new(),
            outbox: vec![0; 1 << 16].into_boxed_slice(),
            commands,
            waker,
        }
    }

    /// Runs until it is told to stop, or its handle is gone.
    pub fn run(mut self) {
        loop {
            let dues = [self.pipeline.poll_timeout(), self.crossbar.due(), Some(self.next_hello)];
            let due = dues.into_iter().flatten().min().unwrap_or(self.next_hello);
            let timeout = clock::duration(due.since(self.clock.now()));
            let ready = wake::wait(self.udp.as_fd(), &self.waker, Some(timeout));
            if ready.woken {
                self.waker.clear();
                if !self.obey() {
                    return;
                }
            }
            if ready.packets {
                self.receive();
            }
            self.tick();
        }
    }

    /// What is due by itself: timers, signs of life, queues.
    fn tick(&mut self) {
        let now = self.clock.now();
        if self.pipeline.poll_timeout().is_some_and(|due| due <= now) {
            self.pipeline.handle_timeout(now);
            self.transmit(now);
        }
        if self.next_hello <= now {
            self.crossbar.look(now, false);
            self.crossbar.greet(self.ready, &mut self.udp);
            self.next_hello = now + HELLO_EVERY;
        }
        self.crossbar.drain(now, &mut self.udp);
    }

    /// Takes what the socket holds, for one batch after another while they are full.
    fn receive(&mut self) {
        // A bound, so that commands and timers have their turn under load.
        for _ in 0..16 {
            let more = self.udp.receive(&mut self.inbox);
            let now = self.clock.now();
            self.process(now);
            if !more {
                return;
            }
        }
    }

    fn process(&mut self, now: Time) {
        for index in 0..self.inbox.messages.len() {
            let message = self.inbox.messages[index];
            let packets = message.segments().count();
            let ingress = self.crossbar.ingress(message.from, packets, message.len);
            for place in message.segments() {
                let packet = &mut self.inbox.memory[place];
                let common = match Common::parse(packet) {
                    Ok(common) => common,
                    Err(reason) => {
                        self.strangers.count(reason);
                        continue;
                    }
                };
                if common.job == JobId(0) {
                    let handled = own::handle(&mut self.crossbar, now, ingress, &common, packet, message.ecn);
                    handled.unwrap_or_else(|reason| self.strangers.count(reason));
                    continue;
                }
                if !self.crossbar.admits(now, ingress, message.from, common.job) {
                    self.strangers.count(DropReason::NotAMember);
                    continue;
                }
                let mut packet = PacketMut::new(packet, message.ecn);
                let verdict = self.pipeline.process(now, ingress, &mut packet, &self.crossbar);
                if !matches!(verdict, Verdict::Consume | Verdict::Drop(_)) {
                    self.crossbar.carry_out(verdict, &packet.bytes[..packet.len], packet.ecn, common.job);
                }
            }
            self.transmit(now);
            self.crossbar.drain(now, &mut self.udp);
        }
    }

    /// Queues what machines make themselves.
    fn transmit(&mut self, now: Time) {
        while let Some(emission) = self.pipeline.poll_transmit(now, &mut self.outbox) {
            let packet = &self.outbox[..emission.len];
            let job = Common::parse(packet).map_or(JobId(0), |common| common.job);
            self.crossbar.carry_out(emission.verdict, packet, emission.ecn, job);
        }
    }

    /// Carries out what the handle asked; false when the thread shall end.
    fn obey(&mut self) -> bool {
        loop {
            // An answer that nobody waits for any more is of no use to anyone.
            match self.commands.try_recv() {
                Ok(Command::Sync { keep, install, reply }) => drop(reply.send(self.sync(&keep, install))),
                Ok(Command::Report(reply)) => drop(reply.send(self.report())),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Which of `keep` are not here: the asker installs them with the next call.
    fn sync(&mut self, keep: &[JobId], install: Vec<FabricJob>) -> Vec<JobId> {
        let stays = |id: &JobId| keep.contains(id) || install.iter().any(|job| job.job.config.job == *id);
        let gone: Vec<JobId> = self.jobs.keys().copied().filter(|id| !stays(id)).collect();
        gone.into_iter().for_each(|id| self.remove(id));
        install.into_iter().for_each(|job| self.install(job));
        let lacking: Vec<JobId> = keep.iter().copied().filter(|id| !self.jobs.contains_key(id)).collect();
        self.ready |= lacking.is_empty();
        lacking
    }

    fn install(&mut self, fabric_job: FabricJob) {
        let JobInstall { protocol, ref config, ref members, .. } = fabric_job.job;
        // The same again changes nothing: sums are under way.
        let known = self.jobs.get(&config.job);
        if known.is_some_and(|(known, _)| known.job.config.key == config.key) {
            return;
        }
        let id = config.job;
        let placed: Vec<(NodeId, SocketAddr)> = fabric_job.hosts.iter().copied().zip(members.iter().copied()).collect();
        self.crossbar.add_job(id, &placed, &self.udp);
        // Who may send is checked by socket before the pipeline; there all ports of the fabric are alike.
        let (members, others) = (Vec::new(), Vec::new());
        let job = InstalledJob { protocol: protocol.code, key: config.key, members, others, machine: None };
        self.pipeline.install(id, job);
        self.jobs.insert(id, (fabric_job, Rates::default()));
    }

    fn remove(&mut self, id: JobId) {
        self.jobs.remove(&id);
        self.crossbar.remove_job(id);
        self.pipeline.remove(id);
    }

    fn report(&mut self) -> FabricReport {
        let now = self.clock.now();
        let mut jobs = Vec::new();
        for (&id, (job, rates)) in &mut self.jobs {
            let Some(mut report) = self.pipeline.report(id) else { continue };
            report.last_seen = job.hosts.iter().map(|&host| self.crossbar.heard(id, host)).collect();
            rates.update(now, &report);
            let (packets_per_s, blocks_per_s) = (rates.packets_per_s, rates.blocks_per_s);
            jobs.push(ShardJob { id, report, packets_per_s, blocks_per_s, absent: Vec::new() });
        }
        let mut strangers = self.strangers.clone();
        strangers.add(self.pipeline.strangers());
        let array = protocols::ALL.iter().copied().find_map(|protocol| self.pipeline.array(protocol.code));
        FabricReport {
            shard: ShardReport {
                now,
                jobs,
                strangers,
                unroutable: self.crossbar.unroutable(),
                socket: *self.udp.counters(),
            },
            ready: self.ready,
            ports: self.crossbar.report(now),
            array,
            installed: self.jobs.values().map(|(job, _)| job.clone()).collect(),
        }
    }
}
