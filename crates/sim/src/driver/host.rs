//! A host: whoever wants to send takes turns at its NIC, which holds only a few packets at a time.

use std::collections::VecDeque;

use tributary_proto::ids::NodeId;
use tributary_proto::packet::Ecn;
use tributary_proto::time::Span;

use super::flows::{FlowId, Flows};
use super::seat::SeatId;
use super::simulation::Traffic;
use crate::events::{EventId, EventKind};
use crate::net::{Fabric, LinkId, Packet, PacketFlags, PayloadId};

/// A host's side of the driver.
pub struct HostNode {
    /// The host.
    pub node: NodeId,
    /// Its cable.
    pub uplink: LinkId,
    /// Its parts in jobs.
    pub seats: Vec<SeatId>,
    /// It takes no packet while so much waits in the NIC.
    nic_limit: Span,
    /// A [`EventKind::Nic`] event is pending.
    armed: bool,
    /// Whose turn it is: a seat, or after the last one the messages.
    turn: usize,
    /// Messages that wait to be sent, in order.
    flows: VecDeque<FlowId>,
}

impl HostNode {
    /// A host at rest, whose NIC holds about `nic_bytes`.
    pub fn new(node: NodeId, fabric: &Fabric, nic_bytes: u64) -> HostNode {
        let uplink = fabric.port(node, 0);
        let nic_limit = fabric.link(uplink).transmission(nic_bytes);
        HostNode { node, uplink, seats: Vec::new(), nic_limit, armed: false, turn: 0, flows: VecDeque::new() }
    }

    /// A message came up.
    pub fn start_flow(&mut self, flow: FlowId) {
        self.flows.push_back(flow);
    }

    /// The NIC has sent what it had.
    pub fn nic_ready(&mut self) {
        self.armed = false;
    }

    /// Fills the NIC from those who want to send; comes back when it is empty, if they may want more.
    pub fn fill_nic(&mut self, fabric: &mut Fabric, traffic: &mut Traffic) {
        loop {
            let link = fabric.link(self.uplink);
            if link.down {
                return;
            }
            if link.backlog(fabric.now) >= self.nic_limit {
                break;
            }
            let Some(packet) = self.next_packet(fabric, traffic) else { return };
            fabric.made(&packet);
            fabric.send(self.uplink, packet);
        }
        if !self.armed {
            self.armed = true;
            let free = fabric.link(self.uplink).busy_until();
            fabric.queue.push(free, EventId::new(EventKind::Nic, self.node.0));
        }
    }

    /// One packet of the next one in turn who has any.
    #[inline]
    fn next_packet(&mut self, fabric: &mut Fabric, traffic: &mut Traffic) -> Option<Packet> {
        for _ in 0..=self.seats.len() {
            let turn = self.turn;
            self.turn = if turn == self.seats.len() { 0 } else { turn + 1 };
            let packet = match self.seats.get(turn) {
                Some(&seat) => {
                    let Traffic { seats, jobs, scratch, .. } = traffic;
                    let seat = &mut seats[seat.0 as usize];
                    if seat.eager { seat.next_packet(fabric, jobs, scratch) } else { None }
                }
                None => self.next_of_flows(fabric, &mut traffic.flows),
            };
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    #[inline]
    fn next_of_flows(&mut self, fabric: &mut Fabric, flows: &mut Flows) -> Option<Packet> {
        let &id = self.flows.front()?;
        let flow = flows.get_mut(id);
        flow.sent += 1;
        if flow.sent == flow.packets {
            self.flows.pop_front();
        }
        Some(Packet {
            arrival: fabric.now,
            src: self.node,
            dst: flow.dst,
            serial: fabric.next_serial(self.node),
            flow: id.0,
            payload: PayloadId::NONE,
            bytes: flow.packet_bytes,
            lane: 0,
            flags: PacketFlags::new(Ecn::Capable, 0),
        })
    }
}
