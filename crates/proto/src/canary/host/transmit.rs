//! Writes what a host sends: first packets about blocks that it leads, then its own contributions and requests.

use super::CanaryHost;
use super::lead::State;
use super::outbox::{Outgoing, Ports};
use super::steps::Step;
use crate::aggregation::exponent_hint::LookAhead;
use crate::canary::vector::Form;
use crate::canary::wire::{HEADER_LEN, Header, Kind, NO_SWITCH, RankProof, Report, proof};
use crate::contract::ids::{NodeId, Rank};
use crate::contract::packet::{Addr, Ecn, Transmit};
use crate::contract::tensor::Primitive;
use crate::contract::time::Time;
use crate::contract::wire::COMMON_LEN;

impl CanaryHost {
    pub(super) fn next_packet(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        while let Some(outgoing) = self.outbox.pop_front() {
            if let Some(transmit) = self.write_outgoing(outgoing, buf) {
                return Some(self.count(transmit));
            }
        }
        if let Some(place) = self.question.take()
            && self.places[usize::from(place)].stage.waits()
        {
            let transmit = self.write_own(place, Kind::Query, buf);
            return transmit.map(|transmit| self.count(transmit));
        }
        while let Some(place) = self.queue.pop() {
            let state = &mut self.places[usize::from(place)];
            if !state.stage.waits() {
                continue;
            }
            let kind = if state.contributed { Kind::Request } else { Kind::Reduce };
            state.contributed = true;
            let (in_step, is_reissued) = (state.in_step, kind == Kind::Reduce && state.attempt > 0);
            let Some(transmit) = self.write_own(place, kind, buf) else { continue };
            let is_repetition = self.recovery.sent(now, place, in_step);
            self.stats.reissued += u64::from(is_reissued);
            self.stats.retransmissions += u64::from(is_repetition || is_reissued);
            return Some(self.count(transmit));
        }
        None
    }

    fn count(&mut self, transmit: Transmit) -> Transmit {
        self.stats.packets_sent += 1;
        transmit
    }

    /// What all packets about a step have in common.
    pub(super) fn header(&self, step: Step, root: NodeId, attempt: u8) -> Header {
        Header {
            destination: NO_SWITCH,
            id: self.steps.id(step),
            counter: 0,
            hosts: self.world_size(),
            children: 0,
            switch_address: NO_SWITCH,
            root,
            bypass: true,
            multicast: false,
            to_leader: self.roots_on_way,
            shard: 0,
            attempt,
            wid: self.config.rank,
            look_ahead: LookAhead::UNKNOWN,
            scale: None,
            spec: self.spec_at(step.place),
            contributors: 0,
        }
    }

    fn emit(&self, kind: Kind, header: &Header, elements: usize, to: NodeId, buf: &mut [u8]) -> Transmit {
        buf[..COMMON_LEN].copy_from_slice(&self.common);
        kind.put(buf);
        header.emit(buf);
        let form = Form::of(self.values, header);
        let (len, wire_len) = (HEADER_LEN + form.buffer_len(elements), HEADER_LEN + form.wire_len(elements));
        Transmit { to: Addr::Node(to), len, wire_len, ecn: Ecn::NotCapable }
    }

    /// A contribution, a request or a query about a place that another rank leads.
    fn write_own(&self, place: u16, kind: Kind, buf: &mut [u8]) -> Option<Transmit> {
        let state = &self.places[usize::from(place)];
        let leader = self.leader_of(place);
        if leader == self.config.rank {
            return None;
        }
        let (step, destination) = (self.step_of(place), self.node_of(leader));
        let header = Header { destination, ..self.header(step, self.root_of(place), state.attempt) };
        if kind != Kind::Reduce {
            return Some(self.emit(kind, &header, 0, destination, buf));
        }
        let direct = self.is_direct(state.attempt);
        let elements = self.contributed_elements_at(place);
        let header = Header {
            counter: 1,
            scale: self.scale_at(place).filter(|_| elements > 0),
            bypass: direct,
            look_ahead: self.look_ahead_at(place),
            contributors: proof(RankProof::of(self.config.rank), header.id, state.attempt),
            ..header
        };
        if elements > 0 {
            let op = self.op_at(place).expect("a place that waits has a block");
            let vector = &mut buf[HEADER_LEN..HEADER_LEN + op.encoding.buffer_len(elements)];
            op.read(state.block, self.agreed_at(place), self.world_size(), vector);
        }
        let to = if direct { destination } else { header.way() };
        Some(self.emit(kind, &header, elements, to, buf))
    }

    /// Writes a leader's packet; `None` if the packet is no longer needed.
    fn write_outgoing(&self, outgoing: Outgoing, buf: &mut [u8]) -> Option<Transmit> {
        match outgoing {
            Outgoing::Tree(step) => self.write_sum(step, None, None, buf),
            Outgoing::Restoration(step, ports) => self.write_sum(step, Some(ports), None, buf),
            Outgoing::Answer(step, rank) => self.write_sum(step, None, Some(rank), buf),
            Outgoing::FailedTree(step, attempt) => self.write_failure(step, attempt, None, None, buf),
            Outgoing::FailedRestoration(step, attempt, ports) => {
                self.write_failure(step, attempt, Some(ports), None, buf)
            }
            Outgoing::Failed(step, rank) => {
                let lead = self.leads.get(step.place, step.phase)?;
                let attempt = (lead.state == State::Gathering).then_some(lead.attempt)?;
                self.write_failure(step, attempt, None, Some(rank), buf)
            }
            Outgoing::Report(step, rank) => {
                let header = self.lead_header(step, 0, None, Some(rank))?;
                let transmit = self.emit(Kind::Report, &header, 0, header.destination, buf);
                let len = Report::emit(buf, self.world_size(), |rank| self.has_contributed(step, rank));
                Some(Transmit { len, wire_len: len, ..transmit })
            }
            Outgoing::Claim(step, rank) => {
                let header = self.lead_header(step, 0, None, Some(rank))?;
                Some(self.emit(Kind::Claim, &header, 0, header.destination, buf))
            }
            Outgoing::Mismatch(step, rank) => {
                let State::Refused(mismatch) = self.leads.get(step.place, step.phase)?.state else { return None };
                let header = self.lead_header(step, 0, None, Some(rank))?;
                let transmit = self.emit(Kind::Mismatch, &header, 0, header.destination, buf);
                let len = HEADER_LEN + mismatch.emit(&mut buf[HEADER_LEN..]);
                Some(Transmit { len, wire_len: len, ..transmit })
            }
        }
    }

    /// The header of a packet from the leader: to a rank, to a switch of a restoration, or to the root.
    fn lead_header(&self, step: Step, attempt: u8, ports: Option<Ports>, rank: Option<Rank>) -> Option<Header> {
        let lead = self.leads.get(step.place, step.phase)?;
        let spec = lead.what.map_or_else(|| self.spec_at(step.place), |(_, spec)| spec);
        let header = Header { spec, ..self.header(step, lead.root, attempt) };
        Some(match (ports, rank) {
            (_, Some(rank)) => Header { destination: self.node_of(rank), ..header },
            (Some(Ports { switch, shard, children }), None) => {
                Header { destination: switch, switch_address: switch, children, shard, multicast: true, ..header }
            }
            (None, None) => Header { destination: lead.root, multicast: true, ..header },
        })
    }

    fn write_sum(&self, step: Step, ports: Option<Ports>, rank: Option<Rank>, buf: &mut [u8]) -> Option<Transmit> {
        let lead = self.leads.get(step.place, step.phase).filter(|lead| lead.state == State::Done)?;
        let header = self.lead_header(step, lead.attempt, ports, rank)?;
        // The packet of a reduce carries no elements, but still travels: it frees descriptors and places, and carries
        // the next exponent.
        let elements = if matches!(header.spec.primitive, Primitive::Reduce(_)) { 0 } else { lead.elements };
        let scale = lead.scale.filter(|_| elements > 0);
        let header = Header { counter: self.world_size(), look_ahead: lead.look_ahead, scale, ..header };
        let len = Form::of(self.values, &header).buffer_len(elements);
        buf[HEADER_LEN..HEADER_LEN + len].copy_from_slice(lead.result(len));
        Some(self.emit(Kind::Broadcast, &header, elements, header.destination, buf))
    }

    fn write_failure(
        &self,
        step: Step,
        attempt: u8,
        ports: Option<Ports>,
        rank: Option<Rank>,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        let header = self.lead_header(step, attempt, ports, rank)?;
        Some(self.emit(Kind::Failure, &header, 0, header.destination, buf))
    }
}
