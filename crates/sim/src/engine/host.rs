//! A host: its senders share the NIC round robin, which holds only a few packets at a time; a host with several: `nics`.

use std::collections::VecDeque;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};

use super::host_delays::{Holds, HostCosts, Noise};
use super::host_memory::HostMemory;
use super::nics::Nics;
use super::records::EndpointId;
use super::traffic::{FlowId, Traffic};
use crate::events::{EventId, EventKind};
use crate::net::{Fabric, Packet, PacketFlags, PayloadId};
use crate::routing::Table;
use crate::topology::LinkId;
use crate::transport::{LONGEST_HEADER, Outgoing, TransportHost};
use crate::workload::{Stream, Uniform};

pub(super) const NEVER: Time = Time(u64::MAX);

/// A host's traffic without a transport and without end.
#[derive(Clone, Debug)]
pub enum Background {
    /// Messages to one peer after the other.
    Uniform(Uniform),
    /// Packets to one peer at a fixed rate.
    Stream(Stream),
}

impl Background {
    fn poll(&mut self, now: Time) -> Result<(NodeId, u16), Time> {
        match self {
            Background::Uniform(source) => source.poll(now),
            Background::Stream(source) => source.poll(now),
        }
    }

    /// The number of its pattern, which its packets carry as their lane.
    fn lane(&self) -> u8 {
        match self {
            Background::Uniform(source) => source.pattern(),
            Background::Stream(source) => source.pattern(),
        }
    }

    /// The source of a received packet's lane, if this is it.
    fn of_lane(&mut self, lane: u8) -> Option<&mut Uniform> {
        match self {
            Background::Uniform(source) if source.pattern() == lane => Some(source),
            Background::Uniform(_) | Background::Stream(_) => None,
        }
    }
}

/// A host.
pub struct HostNode {
    /// The host.
    pub node: NodeId,
    /// Its cable; the first of several.
    pub uplink: LinkId,
    /// All of its NICs, if it has several.
    pub(super) nics: Option<Box<Nics>>,
    /// Its endpoints in jobs.
    pub endpoints: Vec<EndpointId>,
    /// Its sources of background traffic.
    pub background: Vec<Background>,
    /// Its flows under DCTCP.
    pub transport: Option<Box<TransportHost>>,
    /// It is dead.
    pub is_silent: bool,
    /// The noise of its operating system.
    pub noise: Option<Box<Noise>>,
    /// What packets cost its processor.
    pub costs: Option<HostCosts>,
    /// The memory that ranks of a job share, if hosts have several.
    pub memory: Option<Box<HostMemory>>,
    /// While this much waits in the NIC, the host gives it no more packets.
    nic_limit: Span,
    /// When the next [`EventKind::Nic`] event comes.
    armed: Time,
    /// The next sender, round robin: an endpoint, then the messages, then flows under DCTCP, then background traffic.
    next_sender: usize,
    /// Messages that wait to be sent, in their order.
    flows: VecDeque<FlowId>,
}

impl HostNode {
    /// A host at rest, whose NICs hold about `nic_bytes` each.
    pub(super) fn new(node: NodeId, fabric: &Fabric, nic_bytes: u64, nics: Option<Box<Nics>>) -> HostNode {
        let uplink = fabric.port(node, 0);
        HostNode {
            node,
            uplink,
            nics,
            endpoints: Vec::new(),
            background: Vec::new(),
            transport: None,
            is_silent: false,
            noise: None,
            costs: None,
            memory: None,
            nic_limit: fabric.link(uplink).transmission(nic_bytes),
            armed: NEVER,
            next_sender: 0,
            flows: VecDeque::new(),
        }
    }

    /// A cable has another rate: its NIC still holds as many bytes.
    pub fn set_rate(&mut self, fabric: &Fabric, nic_bytes: u64) {
        self.nics.iter_mut().for_each(|nics| nics.set_rate(fabric, nic_bytes));
        self.nic_limit = fabric.link(self.uplink).transmission(nic_bytes);
    }

    /// A message arose.
    pub fn start_flow(&mut self, flow: FlowId) {
        self.flows.push_back(flow);
    }

    /// The host sends and receives nothing any more. Returns how many flows end with it for which the run waits.
    pub fn silence(&mut self, fabric: &mut Fabric) -> u64 {
        self.is_silent = true;
        self.nics.iter_mut().for_each(|nics| nics.clear(fabric));
        self.background.clear();
        self.flows.clear();
        self.transport.take().map_or(0, |transport| transport.open())
    }

    /// A packet of background traffic came; a source that waited for it goes on.
    pub fn receive_background(&mut self, fabric: &mut Fabric, packet: &Packet) {
        let source = self.background.iter_mut().find_map(|source| source.of_lane(packet.lane));
        if source.is_some_and(|source| source.receive(packet.bytes)) {
            self.wake(fabric);
        }
    }

    /// The time for which the NIC was armed, or an earlier time, has come.
    pub fn nic_ready(&mut self, now: Time) {
        if self.armed <= now {
            self.armed = NEVER;
        }
    }

    /// Fills the NIC from the senders, and schedules the next call if they may have more.
    pub fn fill_nic(&mut self, fabric: &mut Fabric, table: &Table, traffic: &mut Traffic) {
        if self.nics.is_some() {
            return self.fill_nics(fabric, table, traffic);
        }
        self.send_kept(fabric);
        let again = loop {
            let link = fabric.link(self.uplink);
            if link.down {
                return self.lose_all(fabric, traffic);
            }
            if link.backlog(fabric.now) >= self.nic_limit {
                // A lossless link has an event when it finishes a packet; when that will be is not known before.
                if fabric.is_lossless() {
                    return;
                }
                break link.busy_until();
            }
            if let Some(busy) = self.costs.map(|costs| costs.free_at).filter(|&free| free > fabric.now) {
                break busy;
            }
            match self.next_packet(fabric, traffic) {
                Ok(packet) => {
                    fabric.record_created(&packet);
                    self.send(fabric, self.uplink, packet);
                }
                Err(NEVER) => return,
                Err(wake) => break wake,
            }
        };
        self.arm(fabric, again);
    }

    /// Gives a packet to the NIC of a cable, unless noise delays it.
    #[inline]
    pub(super) fn send(&mut self, fabric: &mut Fabric, link: LinkId, packet: Packet) {
        self.charge(fabric.now, packet.bytes);
        if let Some(noise) = &mut self.noise
            && noise.should_delay()
        {
            match noise.holds {
                Holds::Nic => fabric.stall(link, noise.delay),
                Holds::Packet => {
                    let until = noise.keep(fabric.now, link, packet);
                    return self.arm(fabric, until);
                }
            }
        }
        fabric.send(link, packet);
    }

    /// The processor sends or receives a packet.
    #[inline]
    pub fn charge(&mut self, now: Time, bytes: u16) {
        if let Some(costs) = &mut self.costs {
            let takes = Span(costs.per_packet.0 + costs.per_byte.0 * u64::from(bytes));
            costs.free_at = costs.free_at.max(now) + takes;
        }
    }

    /// Gives the NIC the packets whose delay is over, even if it is full: it has accepted them before.
    pub(super) fn send_kept(&mut self, fabric: &mut Fabric) {
        let Some(noise) = &mut self.noise else { return };
        while let Some((link, packet)) = noise.release(fabric.now) {
            fabric.send(link, packet);
        }
        if let Some(next) = noise.next_release() {
            self.arm(fabric, next);
        }
    }

    /// Without a cable, packets of machines are lost, because machines must be drained. Messages wait.
    #[cold]
    pub(super) fn lose_all(&mut self, fabric: &mut Fabric, traffic: &mut Traffic) {
        let Traffic { endpoints, jobs, scratch, .. } = traffic;
        for endpoint in &self.endpoints {
            let endpoint = &mut endpoints[endpoint.0 as usize];
            while let Some(packet) = endpoint.next_packet(fabric, jobs, scratch) {
                fabric.record_created(&packet);
                fabric.send(self.uplink, packet);
            }
        }
    }

    /// Schedules a fill of the NIC now, because there is something new to send.
    pub fn wake(&mut self, fabric: &mut Fabric) {
        self.arm(fabric, fabric.now);
    }

    pub(super) fn arm(&mut self, fabric: &mut Fabric, time: Time) {
        if time < self.armed {
            self.armed = time;
            fabric.queue.push(time, EventId::new(EventKind::Nic, self.node.0));
        }
    }

    /// How many share the NIC.
    #[inline]
    pub(super) fn senders(&self) -> usize {
        self.endpoints.len() + 2 + self.background.len()
    }

    /// The sender whose turn it is.
    #[inline]
    pub(super) fn take_turn(&mut self) -> usize {
        let sender = if self.next_sender >= self.senders() { 0 } else { self.next_sender };
        self.next_sender = if sender + 1 == self.senders() { 0 } else { sender + 1 };
        sender
    }

    /// Takes one packet of the next sender that has any; the error is the time when one will.
    #[inline]
    fn next_packet(&mut self, fabric: &mut Fabric, traffic: &mut Traffic) -> Result<Packet, Time> {
        let mut wake = NEVER;
        for _ in 0..self.senders() {
            let sender = self.take_turn();
            match self.packet_of(sender, fabric, traffic) {
                Ok(packet) => return Ok(packet),
                Err(next) => wake = wake.min(next),
            }
        }
        Err(wake)
    }

    /// Takes one packet of a sender; the error is the time when it will have one, if that is known.
    #[inline(always)]
    pub(super) fn packet_of(
        &mut self,
        sender: usize,
        fabric: &mut Fabric,
        traffic: &mut Traffic,
    ) -> Result<Packet, Time> {
        let endpoints = self.endpoints.len();
        if sender < endpoints {
            let Traffic { endpoints, jobs, scratch, .. } = traffic;
            return endpoints[self.endpoints[sender].0 as usize].next_packet(fabric, jobs, scratch).ok_or(NEVER);
        } else if sender == endpoints {
            let id = *self.flows.front().ok_or(NEVER)?;
            let (dst, bytes, last) = traffic.flows.next_packet(id);
            if last {
                self.flows.pop_front();
            }
            return Ok(self.plain_packet(fabric, dst, id, bytes));
        } else if sender == endpoints + 1 {
            return self.next_segment(fabric).ok_or_else(|| self.next_paced());
        }
        let source = &mut self.background[sender - endpoints - 2];
        let (dst, bytes) = source.poll(fabric.now)?;
        let lane = source.lane();
        Ok(Packet { lane, ..self.plain_packet(fabric, dst, FlowId::BACKGROUND, bytes) })
    }

    /// When the rate of a flow allows its next packet, if only that keeps it from sending.
    #[inline]
    pub(super) fn next_paced(&self) -> Time {
        self.transport.as_ref().and_then(|transport| transport.next_paced()).unwrap_or(NEVER)
    }

    fn next_segment(&mut self, fabric: &mut Fabric) -> Option<Packet> {
        let mut header = [0; LONGEST_HEADER];
        let outgoing = self.transport.as_mut()?.poll_transmit(fabric.now, &mut header)?;
        Some(self.segment(fabric, &outgoing, &header))
    }

    /// A packet of the transport, with its header.
    pub(super) fn segment(&self, fabric: &mut Fabric, outgoing: &Outgoing, header: &[u8]) -> Packet {
        let flow = FlowId::of_transport(outgoing.path);
        let packet = self.plain_packet(fabric, outgoing.to, flow, fabric.framing.bytes_on_link(outgoing.wire_len));
        let payload = fabric.payloads.store(&header[..outgoing.header_len], outgoing.wire_len);
        let flags = PacketFlags::new(outgoing.ecn, outgoing.priority).with_records(outgoing.takes_records);
        Packet { payload, flags, lane: outgoing.lane, ..packet }
    }

    #[inline]
    fn plain_packet(&self, fabric: &mut Fabric, dst: NodeId, flow: FlowId, bytes: u16) -> Packet {
        Packet {
            arrival: fabric.now,
            src: self.node,
            dst,
            serial: fabric.next_serial(self.node),
            flow: flow.0,
            payload: PayloadId::NONE,
            bytes,
            lane: 0,
            flags: PacketFlags::new(Ecn::Capable, 0),
        }
    }
}
