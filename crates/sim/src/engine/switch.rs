//! A switch: forwards packets for other nodes, and gives the other packets to its programs.

use tributary_proto::contract::drive;
use tributary_proto::contract::drive::switch::{Arrival, Passed, SwitchIo};
use tributary_proto::contract::ids::{GroupId, NodeId, PortId};
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::switch::{Emission, SharedReport, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;
use tributary_proto::protocols;

use super::accelerator::InAccelerator;
use super::cores::SwitchCores;
use super::records::{JobIndex, Scratch};
use crate::net::{Fabric, Origin, Packet, PacketFlags, Queues};
use crate::routing::{Chooser, Table};
use crate::topology::LinkId;

/// A switch.
pub struct SwitchNode {
    /// Where its packets leave.
    pub forwarding: Forwarding,
    /// Its programs: a pipeline for each lane, that is, for each tree of a job.
    pub pipelines: Vec<Pipeline>,
    /// Packets for a lane that no job uses here.
    pub rejected_packets: u64,
    /// The cores on which its programs run, if running takes time.
    pub(super) cores: Option<Box<SwitchCores>>,
    /// The accelerator before its programs, if that takes time.
    pub(super) accelerator: Option<Box<InAccelerator>>,
}

impl SwitchNode {
    /// A switch without programs.
    pub fn new(node: NodeId, index: u32, chooser: Chooser) -> SwitchNode {
        let forwarding = Forwarding::new(node, index, chooser);
        SwitchNode { forwarding, pipelines: Vec::new(), rejected_packets: 0, cores: None, accelerator: None }
    }

    /// Gives a packet to its program, now or when it has passed the accelerator.
    pub fn process(&mut self, fabric: &mut Fabric, table: &Table, from: LinkId, packet: Packet, scratch: &mut Scratch) {
        fabric.record_delivered(self.forwarding.node, &packet);
        match &mut self.accelerator {
            Some(accelerator) => accelerator.push(fabric.now, from, packet),
            None => self.run_program(fabric, table, from, packet, scratch),
        }
    }

    fn run_program(&mut self, fabric: &mut Fabric, table: &Table, from: LinkId, packet: Packet, scratch: &mut Scratch) {
        let lane = packet.lane;
        let Some(pipeline) = self.pipelines.get_mut(usize::from(lane)) else {
            self.rejected_packets += 1;
            fabric.payloads.release(packet.payload);
            return;
        };
        if self.cores.is_some() {
            return self.arrive(fabric, table, from, packet, scratch);
        }
        let mut lane = Lane {
            forwarding: &mut self.forwarding,
            fabric,
            table,
            lane,
            scratch,
            arrived: Some((from, packet)),
            fresh: true,
        };
        drive::switch::receive(pipeline, &mut lane);
    }

    /// Sends the packets that a lane's programs have made by themselves.
    pub fn drain(&mut self, fabric: &mut Fabric, table: &Table, lane: usize, scratch: &mut Scratch) {
        let Some(pipeline) = self.pipelines.get_mut(lane) else { return };
        let lane = lane as u8;
        let mut lane =
            Lane { forwarding: &mut self.forwarding, fabric, table, lane, scratch, arrived: None, fresh: false };
        drive::switch::transmit(pipeline, &mut lane);
    }

    /// Runs the timers of all programs.
    pub fn handle_timeout(&mut self, fabric: &mut Fabric, table: &Table, scratch: &mut Scratch) {
        self.run_cores(fabric, table, scratch);
        while let Some((from, packet)) = self.accelerator.as_mut().and_then(|it| it.pop_due(fabric.now)) {
            self.run_program(fabric, table, from, packet, scratch);
        }
        for (lane, pipeline) in (0..).zip(&mut self.pipelines) {
            let mut lane =
                Lane { forwarding: &mut self.forwarding, fabric, table, lane, scratch, arrived: None, fresh: false };
            drive::switch::handle_timeout(pipeline, &mut lane);
        }
    }

    /// When the first timer runs out, after a packet for one pipeline, if that is before `limit`: the switch's timer is
    /// set for then, or for an earlier timer of another pipeline.
    #[inline]
    pub fn next_timeout(&self, lane: u8, limit: Time) -> Option<Time> {
        if self.cores.is_some() || self.accelerator.is_some() {
            return self.next_timeout_of_all();
        }
        self.pipelines.get(usize::from(lane))?.poll_timeout_before(limit)
    }

    /// The same, after the timers of all pipelines have run.
    pub fn next_timeout_of_all(&self) -> Option<Time> {
        let cores = self.cores.as_ref().and_then(|cores| cores.next_time());
        let accelerator = self.accelerator.as_ref().and_then(|accelerator| accelerator.next_time());
        let timers = self.pipelines.iter().filter_map(|pipeline| pipeline.poll_timeout());
        timers.chain(cores).chain(accelerator).min()
    }

    /// The processor, if programs run on one.
    pub fn cores(&self) -> Option<&SwitchCores> {
        self.cores.as_deref()
    }

    /// Applies a verdict to a packet that a program has handled.
    #[inline]
    pub(super) fn carry_out(
        &mut self,
        fabric: &mut Fabric,
        table: &Table,
        (from, packet): (LinkId, Packet),
        verdict: Verdict,
        passed: Passed,
    ) {
        carry_out(&mut self.forwarding, fabric, table, (from, packet), verdict, passed);
    }

    /// Sends a packet that a program has made.
    pub(super) fn emit(&mut self, fabric: &mut Fabric, table: &Table, lane: u8, emission: &Emission, bytes: &[u8]) {
        emit(&mut self.forwarding, fabric, table, lane, emission, bytes);
    }

    /// The memory that jobs share: the protocol's code, its state, and the bytes that it takes.
    pub fn shared(&self) -> impl Iterator<Item = (u8, SharedReport, usize)> + '_ {
        self.pipelines.iter().flat_map(Pipeline::all_shared)
    }
}

/// The surroundings of one pipeline: its packet, and the switch's output ports.
struct Lane<'a> {
    forwarding: &'a mut Forwarding,
    fabric: &'a mut Fabric,
    table: &'a Table,
    lane: u8,
    scratch: &'a mut Scratch,
    /// The packet that came in, and its link.
    arrived: Option<(LinkId, Packet)>,
    /// True until the pipeline has received the packet.
    fresh: bool,
}

impl SwitchIo for Lane<'_> {
    type Ports<'a>
        = Queues<'a>
    where
        Self: 'a;

    #[inline]
    fn now(&self) -> Time {
        self.fabric.now
    }

    #[inline]
    fn receive(&mut self) -> Option<Arrival<'_, Queues<'_>>> {
        let (from, packet) = self.arrived.as_mut().filter(|_| std::mem::take(&mut self.fresh))?;
        packet.payload = self.fabric.payloads.make_unique(packet.payload);
        let ingress = PortId(self.fabric.link(*from).to_port);
        let (payloads, ports) = self.fabric.payloads_and_queues(self.forwarding.node);
        let (bytes, wire_len) = payloads.get_mut(packet.payload);
        let len = bytes.len();
        Some(Arrival { ingress, packet: PacketMut { bytes, len, wire_len, ecn: packet.flags.ecn() }, ports })
    }

    #[inline]
    fn carry_out(&mut self, verdict: Verdict, passed: Passed) {
        let Some(arrived) = self.arrived else { return };
        carry_out(self.forwarding, self.fabric, self.table, arrived, verdict, passed);
    }

    #[inline]
    fn transmit_buf(&mut self) -> &mut [u8] {
        self.scratch
    }

    #[inline]
    fn send(&mut self, emission: Emission) {
        let bytes = &self.scratch[..emission.len];
        emit(self.forwarding, self.fabric, self.table, self.lane, &emission, bytes);
    }
}

/// Applies a verdict to a packet that came over a link and that a program has handled.
#[inline]
fn carry_out(
    forwarding: &mut Forwarding,
    fabric: &mut Fabric,
    table: &Table,
    (from, packet): (LinkId, Packet),
    verdict: Verdict,
    passed: Passed,
) {
    let Passed { len, wire_len, ecn } = passed;
    fabric.record_handled(forwarding.node, &packet);
    fabric.payloads.set_len(packet.payload, len, wire_len);
    let bytes = fabric.framing.bytes_on_link(wire_len);
    let mut packet = Packet { src: forwarding.node, bytes, ..packet };
    packet.flags.set_ecn(ecn);
    forwarding.carry_out(fabric, table, verdict, Origin::Derived(from), packet);
}

/// Sends a packet that a program has made by itself.
#[inline]
fn emit(forwarding: &mut Forwarding, fabric: &mut Fabric, table: &Table, lane: u8, emission: &Emission, bytes: &[u8]) {
    let (flow, every_hop) = classify(bytes);
    let packet = Packet {
        arrival: fabric.now,
        src: forwarding.node,
        dst: forwarding.node,
        serial: 0,
        flow,
        payload: fabric.payloads.store(bytes, emission.wire_len),
        bytes: fabric.framing.bytes_on_link(emission.wire_len),
        lane,
        flags: PacketFlags::new(emission.ecn, 0).with_every_hop(every_hop),
    };
    let link_from = |port: PortId| fabric.port(forwarding.node, port.0).reverse();
    let origin = emission.ingress.map_or(Origin::Local, |port| Origin::Collected(link_from(port)));
    forwarding.carry_out(fabric, table, emission.verdict, origin, packet);
}

/// The flow of a packet that a program made, and whether every switch handles the packet.
fn classify(bytes: &[u8]) -> (u32, bool) {
    let Ok(common) = Common::parse(bytes) else { return (0, false) };
    let every_hop =
        protocols::with_code(common.protocol).is_some_and(|protocol| protocol.placement == Placement::EveryHop);
    (JobIndex(common.job.0.wrapping_sub(1)).flow(), every_hop)
}

/// A switch's forwarding state.
pub struct Forwarding {
    /// The switch.
    pub node: NodeId,
    /// Its number among switches.
    pub index: u32,
    chooser: Chooser,
    has_detours: bool,
    groups: Vec<Vec<PortId>>,
    /// Numbers of groups that are not in use.
    free: Vec<GroupId>,
}

impl Forwarding {
    /// A switch without groups.
    pub fn new(node: NodeId, index: u32, chooser: Chooser) -> Forwarding {
        let has_detours = chooser.has_detours();
        Forwarding { node, index, chooser, has_detours, groups: Vec::new(), free: Vec::new() }
    }

    /// Installs a multicast group.
    pub fn add_group(&mut self, ports: Vec<PortId>) -> GroupId {
        if let Some(group) = self.free.pop() {
            self.groups[group.index()] = ports;
            return group;
        }
        self.groups.push(ports);
        GroupId(self.groups.len() as u16 - 1)
    }

    /// Removes a group, whose number may then be used again.
    pub fn remove_group(&mut self, group: GroupId) {
        self.groups[group.index()].clear();
        self.free.push(group);
    }

    /// Forwards a packet that came over a link or that a program made.
    #[inline]
    pub fn forward(&mut self, fabric: &mut Fabric, table: &Table, origin: Origin, mut packet: Packet) {
        let to = match self.has_detours {
            true => self.chooser.detour(table, self.index, &mut packet),
            false => packet.dst,
        };
        let ports = match packet.flags.every_hop() {
            true => table.next_hops_by_first_cable(self.index, to).0,
            false => table.next_hops(self.index, to).0,
        };
        if ports.is_empty() {
            fabric.lose_unroutable(self.node, &packet);
            return;
        }
        let port = self.chooser.choose(fabric, self.node, ports, &packet);
        let link = fabric.port(self.node, port);
        let packet = if packet.flags.takes_records() { fabric.stamp(link, packet) } else { packet };
        fabric.send_of(origin, link, packet);
    }

    /// Applies a verdict to a packet whose payload this switch holds.
    #[inline(always)]
    pub fn carry_out(&mut self, fabric: &mut Fabric, table: &Table, verdict: Verdict, origin: Origin, packet: Packet) {
        match verdict {
            Verdict::Consume | Verdict::Drop(_) => fabric.payloads.release(packet.payload),
            Verdict::Port(port) => self.send_copies(fabric, std::iter::once(port), 1, origin, packet),
            Verdict::Multicast(set) => self.send_copies(fabric, set.iter(), set.len(), origin, packet),
            Verdict::Group(group) => {
                let ports = &self.groups[group.index()];
                self.send_copies(fabric, ports.iter().copied(), ports.len(), origin, packet);
            }
            Verdict::Route(node) => {
                let packet = Packet { dst: node, serial: fabric.next_serial(self.node), ..packet };
                fabric.record_created(&packet);
                self.forward(fabric, table, origin, packet);
            }
        }
    }

    /// Sends one copy out of each port, for the node at its other end.
    #[inline(always)]
    fn send_copies(
        &self,
        fabric: &mut Fabric,
        ports: impl Iterator<Item = PortId> + Clone,
        count: usize,
        origin: Origin,
        packet: Packet,
    ) {
        if count == 0 {
            return fabric.payloads.release(packet.payload);
        }
        fabric.payloads.share(packet.payload, count as u32 - 1);
        let links = fabric.ports(self.node).len();
        if count > 1 {
            fabric.prefetch_queues(self.node, ports.clone());
        }
        let origin = match origin {
            Origin::Derived(from) if count > 1 => {
                fabric.charge_copies(from, packet.bytes, self.node, ports.clone(), count)
            }
            origin => Some(origin),
        };
        for port in ports {
            // A program may name the port of an unknown sender, which leads nowhere.
            if port.index() >= links {
                fabric.drop_copy(origin.unwrap_or(Origin::Local), packet);
                continue;
            }
            let link = fabric.port(self.node, port.0);
            let packet = Packet { dst: fabric.link(link).to, serial: fabric.next_serial(self.node), ..packet };
            fabric.record_created(&packet);
            match origin {
                Some(origin) => drop(fabric.send_of(origin, link, packet)),
                None => fabric.lose_copy(link, &packet),
            }
        }
    }
}
