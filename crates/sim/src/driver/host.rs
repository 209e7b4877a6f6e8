//! A host: its senders take turns at the NIC, which holds only a few packets at a time.

use std::collections::VecDeque;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};

use super::flows::FlowId;
use super::noise::{Holds, Noise};
use super::seat::HostSeatId;
use super::simulation::Traffic;
use crate::events::{EventId, EventKind};
use crate::net::{Fabric, Packet, PacketFlags, PayloadId};
use crate::topology::LinkId;
use crate::transport::{Endpoint, HEADER_LEN};
use crate::workload::{Stream, Uniform};

const NEVER: Time = Time(u64::MAX);

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
            Background::Uniform(source) => source.which(),
            Background::Stream(source) => source.which(),
        }
    }

    /// The source of a received packet's lane, if this is it.
    fn of_lane(&mut self, lane: u8) -> Option<&mut Uniform> {
        match self {
            Background::Uniform(source) if source.which() == lane => Some(source),
            Background::Uniform(_) | Background::Stream(_) => None,
        }
    }
}

/// A host's side of the driver.
pub struct HostNode {
    /// The host.
    pub node: NodeId,
    /// Its cable.
    pub uplink: LinkId,
    /// Its parts in jobs.
    pub seats: Vec<HostSeatId>,
    /// Its parts in background traffic.
    pub background: Vec<Background>,
    /// Its endpoint of flows under DCTCP.
    pub endpoint: Option<Box<Endpoint>>,
    /// It is dead.
    pub is_silent: bool,
    /// Its own delays.
    pub noise: Option<Box<Noise>>,
    /// While so much waits in the NIC, the host gives it no more packets.
    nic_limit: Span,
    /// When the next [`EventKind::Nic`] event comes.
    armed: Time,
    /// The next sender in turn: a seat, then the messages, then flows under DCTCP, then background traffic.
    turn: usize,
    /// Messages that wait to be sent, in their order.
    flows: VecDeque<FlowId>,
}

impl HostNode {
    /// A host at rest, whose NIC holds about `nic_bytes`.
    pub fn new(node: NodeId, fabric: &Fabric, nic_bytes: u64) -> HostNode {
        let uplink = fabric.port(node, 0);
        HostNode {
            node,
            uplink,
            seats: Vec::new(),
            background: Vec::new(),
            endpoint: None,
            is_silent: false,
            noise: None,
            nic_limit: fabric.link(uplink).transmission(nic_bytes),
            armed: NEVER,
            turn: 0,
            flows: VecDeque::new(),
        }
    }

    /// The cable has another rate: the NIC still holds as many bytes.
    pub fn set_rate(&mut self, fabric: &Fabric, nic_bytes: u64) {
        self.nic_limit = fabric.link(self.uplink).transmission(nic_bytes);
    }

    /// A message arose.
    pub fn start_flow(&mut self, flow: FlowId) {
        self.flows.push_back(flow);
    }

    /// The host sends and receives nothing any more. Returns how many flows end with it for which the run waits.
    pub fn silence(&mut self) -> u64 {
        self.is_silent = true;
        self.background.clear();
        self.flows.clear();
        self.endpoint.take().map_or(0, |endpoint| endpoint.open())
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

    /// Fills the NIC from the senders; is called again when the NIC is empty, if senders may have more.
    pub fn fill_nic(&mut self, fabric: &mut Fabric, traffic: &mut Traffic) {
        self.send_kept(fabric);
        let again = loop {
            let link = fabric.link(self.uplink);
            if link.down {
                return self.lose_all(fabric, traffic);
            }
            if link.backlog(fabric.now) >= self.nic_limit {
                // A lossless link tells when it has finished a packet; it does not know before when that will be.
                if fabric.is_lossless() {
                    return;
                }
                break link.busy_until();
            }
            match self.next_packet(fabric, traffic) {
                Ok(packet) => {
                    fabric.made(&packet);
                    self.send(fabric, packet);
                }
                Err(NEVER) => return,
                Err(wake) => break wake,
            }
        };
        self.arm(fabric, again);
    }

    /// Gives a packet to the NIC, unless noise delays it.
    #[inline]
    fn send(&mut self, fabric: &mut Fabric, packet: Packet) {
        if let Some(noise) = &mut self.noise
            && noise.should_mark()
        {
            match noise.holds {
                Holds::Nic => fabric.stall(self.uplink, noise.delay),
                Holds::Packet => {
                    let until = noise.keep(fabric.now, packet);
                    return self.arm(fabric, until);
                }
            }
        }
        fabric.send(self.uplink, packet);
    }

    /// Gives the NIC the packets whose delay is over, even if it is full: they were taken long ago.
    fn send_kept(&mut self, fabric: &mut Fabric) {
        let Some(noise) = &mut self.noise else { return };
        while let Some(packet) = noise.release(fabric.now) {
            fabric.send(self.uplink, packet);
        }
        if let Some(next) = noise.next_release() {
            self.arm(fabric, next);
        }
    }

    /// Without a cable, packets of machines are lost, because machines must be drained. Messages wait.
    #[cold]
    fn lose_all(&mut self, fabric: &mut Fabric, traffic: &mut Traffic) {
        let Traffic { seats, jobs, scratch, .. } = traffic;
        for seat in &self.seats {
            let seat = &mut seats[seat.0 as usize];
            while let Some(packet) = seat.next_packet(fabric, jobs, scratch) {
                fabric.made(&packet);
                fabric.send(self.uplink, packet);
            }
        }
    }

    /// There is something new to send: the NIC is filled before time goes on.
    pub fn wake(&mut self, fabric: &mut Fabric) {
        self.arm(fabric, fabric.now);
    }

    fn arm(&mut self, fabric: &mut Fabric, time: Time) {
        if time < self.armed {
            self.armed = time;
            fabric.queue.push(time, EventId::new(EventKind::Nic, self.node.0));
        }
    }

    /// Takes one packet of the next sender in turn that has any; the error is the time when one will.
    #[inline]
    fn next_packet(&mut self, fabric: &mut Fabric, traffic: &mut Traffic) -> Result<Packet, Time> {
        self.turn = if self.turn > self.seats.len() + 1 + self.background.len() { 0 } else { self.turn };
        let (seats, turns) = (self.seats.len(), self.seats.len() + 2 + self.background.len());
        let mut wake = NEVER;
        for _ in 0..turns {
            let turn = self.turn;
            self.turn = if turn + 1 == turns { 0 } else { turn + 1 };
            if turn < seats {
                let Traffic { seats, jobs, scratch, .. } = traffic;
                let seat = &mut seats[self.seats[turn].0 as usize];
                if let Some(packet) = seat.next_packet(fabric, jobs, scratch) {
                    return Ok(packet);
                }
            } else if turn == seats {
                if let Some(&id) = self.flows.front() {
                    let (dst, bytes, last) = traffic.flows.next_packet(id);
                    if last {
                        self.flows.pop_front();
                    }
                    return Ok(self.plain_packet(fabric, dst, id, bytes));
                }
            } else if turn == seats + 1 {
                if let Some(packet) = self.next_segment(fabric) {
                    return Ok(packet);
                }
            } else {
                let source = &mut self.background[turn - seats - 2];
                match source.poll(fabric.now) {
                    Ok((dst, bytes)) => {
                        let lane = source.lane();
                        return Ok(Packet { lane, ..self.plain_packet(fabric, dst, FlowId::BACKGROUND, bytes) });
                    }
                    Err(next) => wake = wake.min(next),
                }
            }
        }
        Err(wake)
    }

    fn next_segment(&mut self, fabric: &mut Fabric) -> Option<Packet> {
        let mut header = [0; HEADER_LEN];
        let outgoing = self.endpoint.as_mut()?.poll_transmit(fabric.now, &mut header)?;
        let flow = FlowId::of_transport(outgoing.flow);
        let packet = self.plain_packet(fabric, outgoing.to, flow, fabric.framing.bytes_on_link(outgoing.wire_len));
        let payload = fabric.payloads.store(&header, outgoing.wire_len);
        Some(Packet { payload, flags: PacketFlags::new(outgoing.ecn, 0), ..packet })
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
