//! The loop of one shard.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use tokio::sync::oneshot;
use tributary_proto::collective::values::Values;
use tributary_proto::contract::config::{Parent, SwitchConfig};
use tributary_proto::contract::ids::{GroupId, JobId, ShardId};
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Switch};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;

use super::forward::Forwarder;
use super::ports::Ports;
use super::rates::Rates;
use super::uplink::Uplinks;
use super::{JobInstall, ShardError, ShardJob, ShardReport};
use crate::clock::{self, Clock};
use crate::udp::{Inbox, UdpPort};
use crate::wake::{self, Waker};

/// What a handle asks of the thread, with the way back for the answer.
pub enum Command {
    Install(Box<JobInstall>, oneshot::Sender<Result<(), ShardError>>),
    Remove(JobId, oneshot::Sender<bool>),
    Report(oneshot::Sender<ShardReport>),
    Stop,
}

/// The state of a running shard. Nothing of it is shared.
pub struct ShardThread {
    shard: ShardId,
    clock: Clock,
    udp: UdpPort,
    pipeline: Pipeline,
    ports: Ports,
    /// Installed jobs, by ascending id, with their rates.
    jobs: Vec<(JobId, Rates)>,
    inbox: Inbox,
    forwarder: Forwarder,
    uplinks: Uplinks,
    /// For packets that machines make themselves.
    outbox: Box<[u8]>,
    commands: Receiver<Command>,
    waker: Arc<Waker>,
}

impl ShardThread {
    /// A shard without jobs.
    pub fn new(shard: ShardId, udp: UdpPort, commands: Receiver<Command>, waker: Arc<Waker>) -> ShardThread {
        ShardThread {
            shard,
            clock: Clock::start(),
            udp,
            pipeline: Pipeline::default(),
            ports: Ports::default(),
            jobs: Vec::new(),
            inbox: Inbox::new(),
            forwarder: Forwarder::new(),
            uplinks: Uplinks::default(),
            outbox: vec![0; 1 << 16].into_boxed_slice(),
            commands,
            waker,
        }
    }

    /// Runs until it is told to stop, or its handle is gone.
    pub fn run(mut self) {
        loop {
            let due = self.pipeline.poll_timeout().into_iter().chain(self.uplinks.poll_timeout()).min();
            let timeout = due.map(|due| clock::duration(due.since(self.clock.now())));
            let ready = wake::wait(self.udp.as_fd(), &self.waker, timeout);
            if ready.woken {
                self.waker.clear();
                if !self.obey() {
                    return;
                }
            }
            if ready.packets {
                self.receive();
            }
            let now = self.clock.now();
            if self.pipeline.poll_timeout().is_some_and(|due| due <= now) {
                self.pipeline.handle_timeout(now);
                self.transmit(now);
            }
            self.uplinks.ping(now, &self.ports, &mut self.udp);
        }
    }

    /// Takes what the socket holds, for one batch after another while they are full.
    fn receive(&mut self) {
        // A bound, so that commands and timers have their turn under load.
        for _ in 0..16 {
            let more = self.udp.receive(&mut self.inbox);
            let now = self.clock.now();
            self.process(now);
            self.transmit(now);
            if !more {
                return;
            }
        }
    }

    fn process(&mut self, now: Time) {
        let Inbox { memory, messages, .. } = &mut self.inbox;
        for message in messages {
            let ingress = self.ports.of(message.from);
            for place in message.segments() {
                let mut packet = PacketMut::new(&mut memory[place.clone()], message.ecn);
                let verdict = self.pipeline.process(now, ingress, &mut packet, &NoQueues);
                let (place, ecn) = (place.start..place.start + packet.len, packet.ecn);
                self.forwarder.push(place, ecn, verdict, memory, &self.ports, &mut self.udp);
            }
        }
        self.forwarder.flush(memory, &self.ports, &mut self.udp);
    }

    /// Sends what machines make themselves.
    fn transmit(&mut self, now: Time) {
        while let Some(emission) = self.pipeline.poll_transmit(now, &mut self.outbox) {
            let place = 0..emission.len;
            let memory = &self.outbox;
            self.forwarder.push(place, emission.ecn, emission.verdict, memory, &self.ports, &mut self.udp);
            self.forwarder.flush(memory, &self.ports, &mut self.udp);
        }
    }

    /// Carries out what the handle asked; false when the thread shall end.
    fn obey(&mut self) -> bool {
        loop {
            // An answer that nobody waits for any more is of no use to anyone.
            match self.commands.try_recv() {
                Ok(Command::Install(job, reply)) => drop(reply.send(self.install(*job))),
                Ok(Command::Remove(job, reply)) => drop(reply.send(self.remove(job))),
                Ok(Command::Report(reply)) => drop(reply.send(self.report())),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn install(&mut self, job: JobInstall) -> Result<(), ShardError> {
        let JobInstall { protocol, config, members, asked_at, below, parent } = job;
        let (id, key, group) = (config.job, config.key, group_of(config.job));
        self.remove(id);
        let no_ports = ShardError::NoPorts(self.shard);
        let to = |(&member, &asked_at)| (member, self.udp.destination_from(asked_at, member));
        let members: Vec<_> = members.iter().zip(&asked_at).map(to).collect();
        let Some(members) = self.ports.add_group(group, members) else { return Err(no_ports) };
        let mut above = None;
        if let Some((addr, child)) = parent {
            let Some(port) = self.ports.add_uplink(group, addr, self.udp.destination(addr)) else {
                self.ports.remove_group(group);
                return Err(no_ports);
            };
            above = Some(Parent { port, child });
            self.uplinks.add(port, Common { protocol: protocol.code, kind: 0, job: id, key });
        }
        let others = above.iter().map(|parent| parent.port).collect();
        let config =
            SwitchConfig { job: config, shard: self.shard, members: members.clone(), below, group, parent: above };
        let machine: Option<Box<dyn Switch>> = protocol.switch(Values::Elements, &config);
        let job = InstalledJob { protocol: protocol.code, key, members, others, machine };
        self.pipeline.install(id, job);
        let at = self.jobs.partition_point(|(other, _)| *other < id);
        self.jobs.insert(at, (id, Rates::default()));
        Ok(())
    }

    fn remove(&mut self, job: JobId) -> bool {
        self.jobs.retain(|(id, _)| *id != job);
        self.uplinks.remove(job);
        self.ports.remove_group(group_of(job));
        self.pipeline.remove(job)
    }

    fn report(&mut self) -> ShardReport {
        let now = self.clock.now();
        let pipeline = &self.pipeline;
        let jobs = self.jobs.iter_mut().filter_map(|(id, rates)| {
            let report = pipeline.report(*id)?;
            rates.update(now, &report);
            let (packets_per_s, blocks_per_s) = (rates.packets_per_s, rates.blocks_per_s);
            Some(ShardJob { id: *id, packets_per_s, blocks_per_s, report, absent: Vec::new() })
        });
        let jobs = jobs.collect();
        let (strangers, socket) = (self.pipeline.strangers().clone(), *self.udp.counters());
        ShardReport { now, jobs, strangers, unroutable: self.forwarder.unroutable(), socket }
    }
}

/// A job's members are one group, with the job's own number.
fn group_of(job: JobId) -> GroupId {
    GroupId(job.0)
}
