//! Writes what a host sends: first packets about blocks that it leads, then its own contributions and requests.

use super::CanaryHost;
use super::lead::State;
use super::window::Step;
use crate::aggregation::agreement::ExponentHint;
use crate::canary::vector::Codec;
use crate::canary::wire::{HEADER_LEN, Header, Kind, NO_SWITCH, RankProof, Report, SHARD_PORTS, proof};
use crate::contract::ids::{NodeId, PortId, Rank};
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
        if let Some(position) = self.question.take()
            && self.entries[usize::from(position)].stage.waits()
        {
            let transmit = self.write_own(position, Kind::Query, buf);
            return transmit.map(|transmit| self.count(transmit));
        }
        while let Some(position) = self.queue.pop() {
            let state = &mut self.entries[usize::from(position)];
            if !state.stage.waits() {
                continue;
            }
            let kind = if state.contributed { Kind::Request } else { Kind::Reduce };
            state.contributed = true;
            let (in_step, is_reissued) = (state.in_step, kind == Kind::Reduce && state.attempt > 0);
            let Some(transmit) = self.write_own(position, kind, buf) else { continue };
            let is_repetition = self.recovery.sent(now, position, in_step);
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
            exponent_hint: ExponentHint::UNKNOWN,
            scale: None,
            spec: self.spec_at(step.position),
            contributors: 0,
        }
    }

    fn emit(&self, kind: Kind, header: &Header, elements: usize, to: NodeId, buf: &mut [u8]) -> Transmit {
        buf[..COMMON_LEN].copy_from_slice(&self.common);
        kind.put(buf);
        header.emit(buf);
        let codec = Codec::of(self.values, header);
        let (len, wire_len) = (HEADER_LEN + codec.buffer_len(elements), HEADER_LEN + codec.wire_len(elements));
        Transmit { to: Addr::Node(to), len, wire_len, ecn: Ecn::NotCapable }
    }

    /// A contribution, a request or a query about a position that another rank leads.
    fn write_own(&self, position: u16, kind: Kind, buf: &mut [u8]) -> Option<Transmit> {
        let state = &self.entries[usize::from(position)];
        let leader = self.leader_of(position);
        if leader == self.config.rank {
            return None;
        }
        let (step, destination) = (self.step_of(position), self.node_of(leader));
        let header = Header { destination, ..self.header(step, self.root_of(position), state.attempt) };
        if kind != Kind::Reduce {
            return Some(self.emit(kind, &header, 0, destination, buf));
        }
        let direct = self.is_direct(state.attempt);
        let elements = self.contributed_elements_at(position);
        let header = Header {
            counter: 1,
            scale: self.scale_at(position).filter(|_| elements > 0),
            bypass: direct,
            exponent_hint: self.exponent_hint_at(position),
            contributors: proof(RankProof::of(self.config.rank), header.id, state.attempt),
            ..header
        };
        if elements > 0 {
            let op = self.op_at(position).expect("a place that waits has a block");
            let vector = &mut buf[HEADER_LEN..HEADER_LEN + op.encoding.buffer_len(elements)];
            op.read(state.block, self.agreed_at(position), self.world_size(), vector);
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
                let lead = self.leads.get(step.position, step.phase)?;
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
                let State::Refused(mismatch) = self.leads.get(step.position, step.phase)?.state else { return None };
                let header = self.lead_header(step, 0, None, Some(rank))?;
                let transmit = self.emit(Kind::Mismatch, &header, 0, header.destination, buf);
                let len = HEADER_LEN + mismatch.emit(&mut buf[HEADER_LEN..]);
                Some(Transmit { len, wire_len: len, ..transmit })
            }
        }
    }

    /// The header of a packet from the leader: to a rank, to a switch of a restoration, or to the root.
    fn lead_header(&self, step: Step, attempt: u8, ports: Option<Ports>, rank: Option<Rank>) -> Option<Header> {
        let lead = self.leads.get(step.position, step.phase)?;
        let spec = lead.what.map_or_else(|| self.spec_at(step.position), |(_, spec)| spec);
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
        let lead = self.leads.get(step.position, step.phase).filter(|lead| lead.state == State::Done)?;
        let header = self.lead_header(step, lead.attempt, ports, rank)?;
        // The packet of a reduce carries no elements, but still travels: it frees descriptors and positions, and
        // carries the next exponent.
        let elements = if matches!(header.spec.primitive, Primitive::Reduce(_)) { 0 } else { lead.elements };
        let scale = lead.scale.filter(|_| elements > 0);
        let header = Header { counter: self.world_size(), exponent_hint: lead.exponent_hint, scale, ..header };
        let len = Codec::of(self.values, &header).buffer_len(elements);
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

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outgoing {
    /// The sum, to the root, for the tree (§3.1.2).
    Tree(Step),
    /// The sum, to a switch, for some of its ports (§3.2.1).
    Restoration(Step, Ports),
    /// The sum, to one rank that asked (§3.3).
    Answer(Step, Rank),
    /// The block is issued again as `attempt`; along the tree of the issue that failed.
    FailedTree(Step, u8),
    /// The same, to a switch at which contributions collided.
    FailedRestoration(Step, u8, Ports),
    /// The same, to one rank.
    Failed(Step, Rank),
    /// Which ranks have been heard of, to one rank that asked.
    Report(Step, Rank),
    /// What this rank leads, to one rank that may not know it.
    Claim(Step, Rank),
    /// Ranks disagree, to one rank.
    Mismatch(Step, Rank),
}

/// Ports of one shard of one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// The switch.
    pub switch: NodeId,
    /// Which 32 ports of the switch.
    pub shard: u8,
    /// A bitmap of ports.
    pub children: u32,
}

/// Groups the ports of collisions by switch and shard.
pub fn group(collisions: &mut [(NodeId, PortId)]) -> Vec<Ports> {
    collisions.sort_unstable_by_key(|&(switch, port)| (switch, port));
    let mut groups: Vec<Ports> = Vec::new();
    for &(switch, port) in collisions.iter() {
        let (shard, bit) = ((port.0 / SHARD_PORTS) as u8, 1 << (port.0 % SHARD_PORTS));
        match groups.last_mut() {
            Some(last) if (last.switch, last.shard) == (switch, shard) => last.children |= bit,
            _ => groups.push(Ports { switch, shard, children: bit }),
        }
    }
    groups
}
