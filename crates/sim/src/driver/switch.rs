//! A switch: forwards what is not for it, and lets its programs work on what is.

use tributary_proto::contract::ids::{GroupId, NodeId, PortId};
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::switch::{ArrayReport, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;
use tributary_proto::protocols;

use super::jobs::JobIndex;
use super::seat::Scratch;
use crate::net::{Fabric, LinkId, Origin, Packet, PacketFlags};
use crate::routing::{Chooser, Table};

/// A switch's side of the driver.
pub struct SwitchNode {
    /// The switch ...
    pub node: NodeId,
    /// ... and its number among switches.
    pub index: u32,
    /// Its programs: a pipeline for each lane, that is, for each tree of a job.
    pub pipelines: Vec<Pipeline>,
    chooser: Chooser,
    groups: Vec<Vec<PortId>>,
    /// When each pipeline's first timer runs out.
    timeouts: Vec<Option<Time>>,
    /// Packets for a lane that no job uses here.
    pub strangers: u64,
}

impl SwitchNode {
    /// A switch without programs.
    pub fn new(node: NodeId, index: u32, chooser: Chooser) -> SwitchNode {
        SwitchNode {
            node,
            index,
            chooser,
            pipelines: Vec::new(),
            groups: Vec::new(),
            timeouts: Vec::new(),
            strangers: 0,
        }
    }

    /// Installs a multicast group.
    pub fn add_group(&mut self, ports: Vec<PortId>) -> GroupId {
        self.groups.push(ports);
        GroupId(self.groups.len() as u16 - 1)
    }

    /// Sends a packet on its way that came in over a link, or that a program made.
    #[inline]
    pub fn forward(&mut self, fabric: &mut Fabric, table: &Table, origin: Origin, packet: Packet) {
        let ports = table.next_hops(self.index, packet.dst).0;
        if ports.is_empty() {
            fabric.lose_unroutable(self.node, &packet);
            return;
        }
        let port = self.chooser.choose(fabric, self.node, ports, &packet);
        let link = fabric.port(self.node, port);
        fabric.send_of(origin, link, packet);
    }

    /// Lets the program that a packet is for work on it.
    pub fn process(&mut self, fabric: &mut Fabric, table: &Table, from: LinkId, packet: Packet, scratch: &mut Scratch) {
        fabric.taken(self.node, &packet);
        let Some(pipeline) = self.pipelines.get_mut(usize::from(packet.lane)) else {
            self.strangers += 1;
            fabric.payloads.release(packet.payload);
            return;
        };
        let payload = fabric.payloads.own(packet.payload);
        let (now, ingress) = (fabric.now, PortId(fabric.link(from).to_port));
        let (payloads, queues) = fabric.payloads_and_queues(self.node);
        let (bytes, wire_len) = payloads.get_mut(payload);
        let len = bytes.len();
        let mut rewritten = PacketMut { bytes, len, wire_len, ecn: packet.flags.ecn() };
        let verdict = pipeline.process(now, ingress, &mut rewritten, &queues);
        let (len, wire_len, ecn) = (rewritten.len, rewritten.wire_len, rewritten.ecn);
        payloads.set_len(payload, len, wire_len);
        let mut packet = Packet { src: self.node, payload, bytes: fabric.framing.bytes_on_link(wire_len), ..packet };
        packet.flags.set_ecn(ecn);
        self.carry_out(fabric, table, verdict, Origin::Made(from), packet);
        self.emit(fabric, table, usize::from(packet.lane), scratch);
    }

    /// Runs the timers of all programs.
    pub fn handle_timeout(&mut self, fabric: &mut Fabric, table: &Table, scratch: &mut Scratch) {
        for lane in 0..self.pipelines.len() {
            self.pipelines[lane].handle_timeout(fabric.now);
            self.emit(fabric, table, lane, scratch);
        }
    }

    /// When the first timer runs out, after a packet for one pipeline.
    pub fn next_timeout(&mut self, lane: u8) -> Option<Time> {
        let lane = usize::from(lane);
        self.timeouts.resize(self.pipelines.len(), None);
        if let Some(pipeline) = self.pipelines.get(lane) {
            self.timeouts[lane] = pipeline.poll_timeout();
        }
        self.timeouts.iter().flatten().min().copied()
    }

    /// The same, after all pipelines have run theirs.
    pub fn next_timeout_of_all(&mut self) -> Option<Time> {
        self.timeouts.clear();
        self.timeouts.extend(self.pipelines.iter().map(|pipeline| pipeline.poll_timeout()));
        self.timeouts.iter().flatten().min().copied()
    }

    /// The memory that jobs share, protocol by protocol, with its bytes.
    pub fn arrays(&self) -> impl Iterator<Item = (ArrayReport, usize)> + '_ {
        let of = |pipeline| protocols::ALL.iter().filter_map(move |protocol| Pipeline::array(pipeline, protocol.code));
        self.pipelines.iter().flat_map(of)
    }

    /// Sends what the programs of a lane make themselves.
    fn emit(&mut self, fabric: &mut Fabric, table: &Table, lane: usize, scratch: &mut Scratch) {
        while let Some(emission) = self.pipelines[lane].poll_transmit(fabric.now, scratch) {
            let payload = fabric.payloads.store(&scratch[..emission.len], emission.wire_len);
            let (flow, every_hop) = about(&scratch[..emission.len]);
            let packet = Packet {
                arrival: fabric.now,
                src: self.node,
                dst: self.node,
                serial: 0,
                flow,
                payload,
                bytes: fabric.framing.bytes_on_link(emission.wire_len),
                lane: lane as u8,
                flags: PacketFlags::new(emission.ecn, 0).with_every_hop(every_hop),
            };
            self.carry_out(fabric, table, emission.verdict, Origin::Own, packet);
        }
    }

    /// Does what a verdict says with a packet whose payload this switch holds.
    #[inline(always)]
    fn carry_out(&mut self, fabric: &mut Fabric, table: &Table, verdict: Verdict, origin: Origin, packet: Packet) {
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
                fabric.made(&packet);
                self.forward(fabric, table, origin, packet);
            }
        }
    }

    /// One copy out of each port, for whoever is at its other end.
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
        let room = match origin {
            Origin::Made(from) if count > 1 => fabric.copies_of(from, packet.bytes, self.node, ports.clone(), count),
            origin => Some(origin),
        };
        for port in ports {
            // A program may name the port that a stranger came from, which leads nowhere.
            if port.index() >= links {
                fabric.drop_copy(room.unwrap_or(Origin::Own), packet);
                continue;
            }
            let link = fabric.port(self.node, port.0);
            let packet = Packet { dst: fabric.link(link).to, serial: fabric.next_serial(self.node), ..packet };
            fabric.made(&packet);
            match room {
                Some(origin) => drop(fabric.send_of(origin, link, packet)),
                None => fabric.lose_copy(link, &packet),
            }
        }
    }
}

/// The flow that a program's own packet belongs to, and whether every switch handles it.
fn about(bytes: &[u8]) -> (u32, bool) {
    let Ok(common) = Common::parse(bytes) else { return (0, false) };
    let every_hop =
        protocols::with_code(common.protocol).is_some_and(|protocol| protocol.placement == Placement::EveryHop);
    (JobIndex(common.job.0.wrapping_sub(1)).flow(), every_hop)
}
