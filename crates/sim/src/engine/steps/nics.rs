//! A host with several NICs fills them from its senders.

use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use crate::engine::host::{HostNode, NEVER};
use crate::engine::job::Jobs;
use crate::engine::nics::{Nics, Sender};
use crate::engine::traffic::{FlowId, Traffic};
use crate::net::{Fabric, Packet, PacketFlags, PayloadId};
use crate::routing::Table;
use crate::transport::LONGEST_HEADER;

impl HostNode {
    /// Fills the NICs from the senders, and schedules the next call if they may have more.
    pub(in crate::engine) fn fill_nics(&mut self, fabric: &mut Fabric, table: &Table, traffic: &mut Traffic) {
        let Some(mut nics) = self.nics.take() else { return };
        self.send_kept(fabric);
        let again = loop {
            if !nics.ports().any(|port| nics.takes(fabric, port)) {
                if nics.ports().all(|port| nics.is_down(fabric, port)) {
                    self.lose_waiting(&mut nics, fabric);
                    self.lose_all(fabric, traffic);
                }
                break nics.next_free(fabric);
            }
            if let Some(busy) = self.costs.map(|costs| costs.free_at).filter(|&free| free > fabric.now) {
                break busy;
            }
            match self.next_for(&mut nics, fabric, table, traffic) {
                Ok((port, packet)) => {
                    fabric.record_created(&packet);
                    self.send(fabric, nics.nics[usize::from(port)].0, packet);
                }
                Err(wake) => break wake,
            }
        };
        self.nics = Some(nics);
        if again != NEVER {
            self.arm(fabric, again);
        }
    }

    /// The packets of machines that wait are lost, because machines must be drained. Others wait.
    fn lose_waiting(&mut self, nics: &mut Nics, fabric: &mut Fabric) {
        let of_machine = |waiting: &mut (Sender, Packet)| matches!(waiting.0, Sender::Endpoint(_));
        for (_, packet) in nics.waiting.extract_if(.., of_machine) {
            let packet = Packet { serial: fabric.next_serial(self.node), ..packet };
            fabric.record_created(&packet);
            fabric.send(self.uplink, packet);
        }
    }

    /// Takes one packet of the next sender that has one whose NIC takes it; the error is the time when one may.
    fn next_for(
        &mut self,
        nics: &mut Nics,
        fabric: &mut Fabric,
        table: &Table,
        traffic: &mut Traffic,
    ) -> Result<(u16, Packet), Time> {
        for at in 0..nics.waiting.len() {
            let packet = nics.waiting[at].1;
            if let Some(port) = nics.choose(fabric, table, &traffic.jobs, &packet) {
                nics.waiting.remove(at);
                return Ok((port, Packet { serial: fabric.next_serial(self.node), ..packet }));
            }
        }
        let (mut wake, mut waits) = (NEVER, !nics.waiting.is_empty());
        let endpoints = self.endpoints.len();
        for _ in 0..self.senders() {
            let number = self.take_turn();
            let sender = match number {
                number if number < endpoints => Sender::Endpoint(self.endpoints[number]),
                number if number == endpoints => Sender::Messages,
                number if number == endpoints + 1 => {
                    match self.next_segment_for(nics, fabric, table, &traffic.jobs) {
                        Ok(sent) => return Ok(sent),
                        Err(transport_waits) => waits |= transport_waits,
                    }
                    wake = wake.min(self.next_paced());
                    continue;
                }
                number => Sender::Background(number - endpoints - 2),
            };
            if nics.waiting.iter().any(|(holder, _)| *holder == sender) {
                continue;
            }
            match self.packet_of(number, fabric, traffic) {
                Ok(packet) => match nics.choose(fabric, table, &traffic.jobs, &packet) {
                    Some(port) => return Ok((port, packet)),
                    None => {
                        fabric.take_back_serial(self.node);
                        nics.waiting.push((sender, packet));
                        waits = true;
                    }
                },
                Err(next) => wake = wake.min(next),
            }
        }
        Err(if waits { wake.min(nics.next_free(fabric)) } else { wake })
    }

    /// A packet of a flow whose NIC takes one; the error is true if one waits.
    fn next_segment_for(
        &mut self,
        nics: &mut Nics,
        fabric: &mut Fabric,
        table: &Table,
        jobs: &Jobs,
    ) -> Result<(u16, Packet), bool> {
        let Some(transport) = &mut self.transport else { return Err(false) };
        let (now, src, mut header) = (fabric.now, self.node, [0; LONGEST_HEADER]);
        let (mut chosen, mut waits) = (None, false);
        let outgoing = transport.poll_transmit_where(now, &mut header, |dst, path, lane| {
            let flags = PacketFlags::new(Ecn::Capable, 0);
            let flow = FlowId::of_transport(path).0;
            let packet =
                Packet { arrival: now, src, dst, serial: 0, flow, payload: PayloadId::NONE, bytes: 0, lane, flags };
            chosen = nics.choose(fabric, table, jobs, &packet);
            waits |= chosen.is_none();
            chosen.is_some()
        });
        match (chosen, outgoing) {
            (Some(port), Some(outgoing)) => Ok((port, self.segment(fabric, &outgoing, &header))),
            _ => Err(waits),
        }
    }
}
