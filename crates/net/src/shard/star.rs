//! A star: the shard of a standalone switch, which knows the addresses of its jobs' members and of parent switches.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use tokio::sync::oneshot;
use tributary_control::servers::JobServer;
use tributary_proto::contract::config::{Below, CoreSlots, FabricPlan, JobConfig, Parent, SharedJob, SwitchConfig};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, PortId, PortSet, TreeId};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::pipeline::InstalledJob;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::{Common, kind};
use tributary_proto::switch_options::SwitchOptions;

use super::forwarder::{Forwarder, Uplinks};
use super::ports::{Member, Ports};
use super::site::{Core, Forwarding, Origin, PacketClass, PreparedJob, Site};
use super::{JobInstall, ShardError, ShardReport};
use crate::challenge::{self, Challenges};
use crate::pool_size::packet_bytes;
use crate::udp::path;
use crate::udp::{Message, Reassembly, UdpPort};

/// A command from a handle to the thread, with the channel for the answer.
pub enum Command {
    Install(Box<JobInstall>, oneshot::Sender<Result<(), ShardError>>),
    Resize(JobId, u16, oneshot::Sender<bool>),
    Remove(JobId, oneshot::Sender<bool>),
    Unshare(&'static Protocol, oneshot::Sender<bool>),
    Report(oneshot::Sender<ShardReport>),
    Challenge { peer: SocketAddr, local_ip: IpAddr, incarnation: u64, questions: u32, reply: oneshot::Sender<bool> },
}

/// How a shard of a star forwards: straight from the memory into which a packet was received.
pub struct Star {
    shard: TreeId,
    /// The incarnation by which parent switches know us.
    incarnation: Option<u64>,
    ports: Ports,
    forwarder: Forwarder,
    uplinks: Uplinks,
    challenges: Challenges,
    /// The fragments that have come in this burst.
    fragments: Vec<(PortId, IpAddr, Ecn, Vec<u8>)>,
    reassembly: Reassembly<PortId, IpAddr>,
    /// The port of the last message's sender, which may be a core of a worker.
    sender: PortId,
    /// The jobs of which some worker has several cores.
    shares: BTreeMap<JobId, Shares>,
}

/// How the workers of a job divide its slots among their cores.
struct Shares {
    protocol: &'static Protocol,
    job: JobConfig,
    shares: u16,
}

impl Forwarding for Star {
    type Command = Command;
    type Job = JobInstall;
    type Ports<'a> = NoQueues;

    fn handle_command(site: &mut Site<Star>, command: Command, core: &mut Core) {
        // Sending an answer fails only if nobody waits for it any more.
        match command {
            Command::Install(job, reply) => drop(reply.send(site.install(*job, core))),
            Command::Resize(job, slots, reply) => drop(reply.send(site.resize(job, slots, core))),
            Command::Remove(job, reply) => drop(reply.send(site.remove(job, core))),
            Command::Unshare(protocol, reply) => drop(reply.send(site.unshare(protocol.code, core))),
            Command::Report(reply) => drop(reply.send(site.report(core))),
            Command::Challenge { peer, local_ip, incarnation, questions, reply } => {
                let to = core.udp.destination_from(local_ip, peer);
                site.forwarding.challenges.ask(core.clock.now(), peer, to, incarnation, questions, reply);
            }
        }
    }

    fn add_job(&mut self, _now: Time, job: JobInstall, udp: &UdpPort) -> Result<PreparedJob, ShardError> {
        let JobInstall { protocol, config, members, core_ports, local_ip, below, servers, parent, .. } = job;
        let (id, key, group, no_ports) =
            (config.job, config.key, group_of(config.job), || ShardError::NoPorts(self.shard));
        let shares = 1 + core_ports.iter().map(Vec::len).max().unwrap_or(0) as u16;
        let cores = core_ports.into_iter().chain(std::iter::repeat(Vec::new()));
        let to = |(((&address, &local_ip), below), cores): (((&SocketAddr, &IpAddr), &Below), Vec<u16>)| {
            let core = |port| SocketAddr::new(address.ip(), port);
            Member {
                address,
                destination: udp.destination_from(local_ip, address),
                serves_several: matches!(below, Below::Switch(_)),
                cores: cores.into_iter().map(core).map(|at| (at, udp.destination_from(local_ip, at))).collect(),
            }
        };
        let to_server = |server: &JobServer| {
            let (address, destination) = (server.addr, udp.destination(server.addr));
            Member { address, destination, serves_several: true, cores: Vec::new() }
        };
        let children = members.iter().zip(&local_ip).zip(&below).zip(cores).map(to);
        let members = children.chain(servers.iter().map(to_server)).collect();
        let members = self.ports.add_group(group, members, protocol.shared.is_some()).ok_or_else(no_ports)?;
        if protocol.shared.is_some() {
            return shared_job(protocol, config, members);
        }
        let mut uplink = None;
        if let Some((addr, child)) = parent {
            let port = self.ports.add_uplink(group, addr, udp.destination(addr)).ok_or_else(no_ports)?;
            uplink = Some(Parent { port, child });
            let common = Common { protocol: protocol.code, kind: 0, job: id, key };
            self.uplinks.add(port, common, packet_bytes(protocol, config.elements_per_packet));
        }
        if shares > 1 {
            self.shares.insert(id, Shares { protocol, job: config.clone(), shares });
        }
        let others = uplink.iter().map(|parent| parent.port).collect();
        let config =
            SwitchConfig { job: config, tree: self.shard, members: members.clone(), below, group, parent: uplink };
        let machine = protocol.switch(Values::Elements, &config);
        Ok(PreparedJob::Own(InstalledJob { protocol: protocol.code, key, members, others, machine }))
    }

    fn remove_job(&mut self, id: JobId) {
        self.uplinks.remove(id);
        self.shares.remove(&id);
        for port in self.ports.remove_group(group_of(id)) {
            self.reassembly.remove(port);
        }
    }

    #[inline]
    fn ingress(&mut self, _now: Time, message: &Message, _udp: &mut UdpPort) -> PortId {
        self.sender = self.ports.of(message.from);
        self.ports.worker_at(self.sender)
    }

    #[inline]
    fn classify(
        &mut self,
        _now: Time,
        ingress: PortId,
        from: SocketAddr,
        packet: &mut [u8],
        ecn: Ecn,
        udp: &mut UdpPort,
    ) -> PacketClass {
        // These packets are rare. Packets of jobs have other lengths and kinds.
        if packet.len() == challenge::LEN && self.handle_challenge(from, packet, udp) {
            return PacketClass::Handled;
        }
        match packet.get(4) {
            Some(&kind::FRAGMENT) => {
                self.fragments.push((self.sender, from.ip(), ecn, packet.to_vec()));
                PacketClass::Handled
            }
            Some(&kind::PONG) => {
                self.uplinks.on_pong(ingress, packet, &mut self.ports);
                PacketClass::Job
            }
            Some(&kind::PROGRESS) => match self.child_at(ingress, packet) {
                Some(child) => PacketClass::Progress(Some(child)),
                None => PacketClass::Job,
            },
            _ => PacketClass::Job,
        }
    }

    fn forward_progress(&mut self, job: JobId, packet: &[u8], udp: &mut UdpPort) {
        if let Some(parent) = self.ports.parent(group_of(job)) {
            udp.send(parent, &[IoSlice::new(packet)], packet.len(), Ecn::NotCapable);
        }
    }

    fn ports(&self) -> NoQueues {
        NoQueues
    }

    #[inline]
    fn carry_out(
        &mut self,
        verdict: Verdict,
        range: Range<usize>,
        ecn: Ecn,
        _origin: Origin,
        memory: &[u8],
        udp: &mut UdpPort,
    ) -> bool {
        let mut verdict = verdict;
        if let (Verdict::Port(_), Some(&kind::PONG)) = (verdict, memory.get(range.start + 4)) {
            // The answer to a ping goes to the core that has sent it, and says how long a packet reaches that core.
            verdict = Verdict::Port(self.sender);
            if let Some(limit) = path::advertised_limit(&memory[range.clone()]) {
                self.ports.set_limit(self.sender, limit);
            }
        }
        let to = self.resolve(verdict, &memory[range.clone()]);
        self.forwarder.push(range, ecn, to, memory, &self.ports, udp);
        !self.forwarder.is_empty()
    }

    #[inline]
    fn flush(&mut self, _now: Time, memory: &[u8], udp: &mut UdpPort) {
        self.forwarder.flush(memory, &self.ports, udp);
    }

    /// Handles packets that came in fragments, after the others.
    fn after(&mut self, now: Time, core: &mut Core) -> bool {
        let fragments = std::mem::take(&mut self.fragments);
        for (sender, host, ecn, fragment) in &fragments {
            let ingress = self.ports.worker_at(*sender);
            let admitted = core.pipeline.accepts(now, ingress, fragment);
            let Some(mut reassembled) = admitted.then(|| self.reassembly.add(now, *sender, *host, fragment)).flatten()
            else {
                continue;
            };
            let mut packet = PacketMut::new(&mut reassembled, *ecn);
            let verdict = core.pipeline.process(now, ingress, &mut packet, &NoQueues);
            let (len, ecn) = (packet.len, packet.ecn);
            let to = self.resolve(verdict, &reassembled[..len]);
            self.forwarder.push(0..len, ecn, to, &reassembled, &self.ports, &mut core.udp);
            self.forwarder.flush(&reassembled, &self.ports, &mut core.udp);
        }
        !fragments.is_empty()
    }

    fn due(&self) -> Option<Time> {
        self.uplinks.poll_timeout().into_iter().chain(self.challenges.poll_timeout()).min()
    }

    fn tick(&mut self, now: Time, udp: &mut UdpPort) {
        self.uplinks.ping(now, &mut self.ports, udp);
        self.challenges.handle_timeout(now, udp);
    }

    fn unroutable(&self) -> u64 {
        self.forwarder.unroutable()
    }
}

impl Star {
    /// A shard without jobs, with these options of the machines that jobs share.
    pub fn site(shard: TreeId, incarnation: Option<u64>, switch_options: SwitchOptions) -> Site<Star> {
        let star = Star {
            shard,
            incarnation,
            ports: Ports::default(),
            forwarder: Forwarder::new(),
            uplinks: Uplinks::default(),
            challenges: Challenges::default(),
            fragments: Vec::new(),
            reassembly: Reassembly::default(),
            sender: PortId::UNKNOWN,
            shares: BTreeMap::new(),
        };
        Site::new(star, FabricPlan::STAR, None, switch_options)
    }

    /// Turns a node into a port, since a star knows only ports. The node's number is that of a member of the packet's
    /// job, or of the server. Also returns the packet's share of the slots, which names a core of each receiver.
    #[inline]
    fn resolve(&self, verdict: Verdict, packet: &[u8]) -> (Verdict, u16) {
        let Verdict::Route(node) = verdict else { return (verdict, self.share_of(packet)) };
        let Ok(common) = Common::parse(packet) else { return (verdict, 0) };
        let rank = FabricPlan::rank_in_star(node);
        let port = rank.and_then(|rank| self.ports.group(group_of(common.job)).get(rank.index()));
        (port.map_or(verdict, |&port| Verdict::Port(port)), 0)
    }

    #[inline]
    fn share_of(&self, packet: &[u8]) -> u16 {
        if self.shares.is_empty() {
            return 0;
        }
        let common = Common::parse(packet).ok().filter(|common| common.kind >= kind::FIRST_OF_PROTOCOL);
        common.and_then(|common| self.shares.get(&common.job)).map_or(0, |Shares { protocol, job, shares }| {
            let slot = (protocol.describe)(packet).slot.unwrap_or(0);
            CoreSlots::share_of(job, *shares, slot as u16)
        })
    }

    /// Answers the challenge of a parent switch, or takes the answer to one of ours. False if the packet is neither.
    fn handle_challenge(&mut self, from: SocketAddr, packet: &[u8], udp: &mut UdpPort) -> bool {
        let answer = self.incarnation.and_then(|incarnation| challenge::answer(packet, incarnation));
        if let Some(answer) = &answer {
            udp.send(&udp.destination(from), &[IoSlice::new(answer)], answer.len(), Ecn::NotCapable);
        }
        answer.is_some() || self.challenges.on_response(from, packet)
    }

    /// The child of its job from which a packet comes.
    fn child_at(&self, ingress: PortId, packet: &[u8]) -> Option<ChildId> {
        let group = self.ports.group(group_of(Common::parse(packet).ok()?.job));
        group.iter().position(|&port| port == ingress).map(|child| ChildId(child as u16))
    }
}

/// A job that uses the machine that its protocol's jobs share; `members` has the ports of its ranks, and then those of its
/// servers.
fn shared_job(protocol: &Protocol, job: JobConfig, members: Vec<PortId>) -> Result<PreparedJob, ShardError> {
    if members.iter().any(|port| port.index() >= PortSet::CAPACITY) {
        return Err(ShardError::Crowded(protocol.name));
    }
    let servers = members.len().saturating_sub(job.world_size.into()) as u16;
    let plan = SharedJob {
        fabric: FabricPlan::star_with_servers(job.world_size, servers),
        ports: members.iter().copied().map(Some).collect(),
        trees: Vec::new(),
        share_bytes: protocol.share_bytes(&job, job.world_size),
        job,
    };
    Ok(PreparedJob::Shared(plan, members))
}

/// A job's members are one group, with the job's own number.
fn group_of(job: JobId) -> GroupId {
    GroupId(job.0)
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::options::Defaults;

    use super::super::testing::{received, socket, transmit_all};
    use super::*;
    use crate::udp::MAX_RUN;

    const JOB: JobId = JobId(1);
    const LEN: usize = 1_000;

    /// A star with the sockets of a job's members, and the star's own socket.
    fn star(members: usize) -> (Site<Star>, Vec<UdpPort>, UdpPort) {
        let (mut star, udp) = (Star::site(TreeId(0), None, SwitchOptions::defaults(Defaults::Real)), socket());
        let members: Vec<UdpPort> = (0..members).map(|_| socket()).collect();
        let named = members.iter().map(|member| {
            let address = member.local_addr();
            Member { address, destination: udp.destination(address), serves_several: false, cores: Vec::new() }
        });
        star.forwarding.ports.add_group(group_of(JOB), named.collect(), true).expect("there are ports");
        (star, members, udp)
    }

    #[test]
    fn what_a_machine_makes_for_all_members_leaves_in_one_run_for_each() {
        let (mut star, mut members, mut udp) = star(3);
        let verdicts = vec![Verdict::Group(group_of(JOB)); 40];
        assert_eq!(transmit_all(&mut star, &mut udp, &[(JOB, LEN, verdicts)]), (120, 3));
        for member in &mut members {
            assert!(received(member).into_iter().eq(0..40));
        }
    }

    #[test]
    fn what_a_machine_makes_for_members_in_turn_leaves_in_one_run_for_each() {
        let (mut star, mut members, mut udp) = star(8);
        let verdicts = (0..80).map(|number| Verdict::Port(PortId(number % 8))).collect();
        assert_eq!(transmit_all(&mut star, &mut udp, &[(JOB, LEN, verdicts)]), (80, 8));
        for (first, member) in (0..).zip(&mut members) {
            assert!(received(member).into_iter().eq((first..80).step_by(8)));
        }
    }

    #[test]
    fn more_than_fits_the_memory_leaves_in_full_runs() {
        let (mut star, mut members, mut udp) = star(1);
        // Full runs leave at once, and their memory is free again.
        let packets = 6 * MAX_RUN - 10;
        let verdicts = vec![Verdict::Port(PortId(0)); packets];
        assert_eq!(transmit_all(&mut star, &mut udp, &[(JOB, 1_400, verdicts)]), (packets as u64, 6));
        assert!(received(&mut members[0]).into_iter().eq((0..packets).map(|number| number as u8)));
    }

    #[test]
    fn no_packet_is_overwritten_where_many_runs_wait_and_the_memory_is_full() {
        let (mut star, mut members, mut udp) = star(12);
        let verdicts = (0..252).map(|number| Verdict::Port(PortId(number % 12))).collect();
        let (packets, runs) = transmit_all(&mut star, &mut udp, &[(JOB, 1_400, verdicts)]);
        // The packets have 353 kB. They go through a memory that is flushed when it holds 196 kB.
        assert_eq!((packets, runs), (252, 24));
        for (first, member) in (0..).zip(&mut members) {
            assert!(received(member).into_iter().eq((first..252).step_by(12)));
        }
    }

    #[test]
    fn packets_of_several_lengths_leave_in_a_run_for_each_length() {
        let (mut star, _members, mut udp) = star(2);
        let to = |port| vec![Verdict::Port(PortId(port)); 10];
        let jobs = [(JOB, LEN, to(0)), (JobId(2), 200, to(1))];
        assert_eq!(transmit_all(&mut star, &mut udp, &jobs), (20, 2));
    }
}
