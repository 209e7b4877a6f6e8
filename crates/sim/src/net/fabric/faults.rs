//! Faults: links that lose, duplicate and reorder packets, cables that break and nodes that die.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use super::Fabric;
use crate::events::{EventId, EventKind};
use crate::net::packet::Packet;
use crate::net::trace::{LossCause, PacketEvent};
use crate::rng::{Purpose, Rng};
use crate::topology::{LinkId, LinkSpec};

/// Probabilities for each packet, independent of other packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImpairmentSpec {
    /// The packet is lost.
    pub loss: f64,
    /// Bits flip, and the frame check drops the packet.
    pub corruption: f64,
    /// The packet arrives twice, the second time up to `longest_delay` later.
    pub duplication: f64,
    /// The packet is delayed, so that others may overtake it.
    pub reordering: f64,
    /// Delays are drawn evenly from a picosecond to this.
    pub longest_delay: Span,
}

/// A faulty link's settings and random numbers.
pub struct LinkImpairment {
    spec: ImpairmentSpec,
    rng: Rng,
}

/// The fate of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// The packet is lost for this cause.
    pub lost: Option<LossCause>,
    /// A copy arrives this much later.
    pub copy_after: Option<Span>,
    /// The packet arrives this much later.
    pub delayed_by: Option<Span>,
}

impl LinkImpairment {
    /// The impairment of one link.
    pub fn new(spec: ImpairmentSpec, seed: u64, link: u32) -> LinkImpairment {
        LinkImpairment { spec, rng: Rng::new(seed, Purpose::LinkFaults, u64::from(link)) }
    }

    /// The fate of the next packet.
    pub fn draw(&mut self) -> Fate {
        let mut fate = Fate::default();
        if self.rng.chance(self.spec.loss) {
            fate.lost = Some(LossCause::Lost);
        } else if self.rng.chance(self.spec.corruption) {
            fate.lost = Some(LossCause::Corrupted);
        } else {
            fate.copy_after = self.rng.chance(self.spec.duplication).then(|| self.delay());
            fate.delayed_by = self.rng.chance(self.spec.reordering).then(|| self.delay());
        }
        fate
    }

    fn delay(&mut self) -> Span {
        Span(1 + (self.rng.unit() * self.spec.longest_delay.0 as f64) as u64)
    }
}

impl Fabric {
    /// Breaks a cable, both ways, or repairs it. Packets on it when it breaks are lost.
    pub fn set_cable_down(&mut self, link: LinkId, down: bool) {
        self.cable_down[link.index() / 2] = down;
        self.refresh(link);
        self.refresh(link.reverse());
    }

    /// Packets that join a link's queue from now on leave at another rate.
    pub fn set_rate(&mut self, link: LinkId, spec: &LinkSpec) {
        self.links[link.index()].set_rate(spec);
        self.recount_waiting(link);
    }

    /// Kills a node or revives it, with all its cables. The machines on the node are handled by the engine.
    pub fn set_node_down(&mut self, node: NodeId, down: bool) {
        self.node_down[node.index()] = down;
        for port in 0..self.ports(node).len() as u16 {
            let link = self.port(node, port);
            self.refresh(link);
            self.refresh(link.reverse());
        }
    }

    /// Impairs a link, or heals it.
    pub fn set_impairment(&mut self, link: LinkId, impairment: Option<LinkImpairment>) {
        self.impairments[link.index()] = impairment.map(Box::new);
        self.refresh(link);
    }

    /// The packet that a fault delayed out of order, whose arrival has come.
    pub fn arrive_reordered(&mut self, link: LinkId) -> Option<Packet> {
        let delayed = self.reordered.get_mut(&link)?;
        let index = delayed.iter().position(|&(time, _)| time == self.now)?;
        let (_, packet) = delayed.remove(index);
        if delayed.is_empty() {
            self.reordered.remove(&link);
        }
        let to = self.links[link.index()].to;
        if self.links[link.index()].down {
            self.lose(link, to, self.why_down(link), &packet);
            return None;
        }
        self.record_arrival(link, to, &packet);
        Some(packet)
    }

    fn refresh(&mut self, id: LinkId) {
        let near = self.near_end(id);
        let link = &mut self.links[id.index()];
        let dead = self.node_down[link.to.index()] || self.node_down[near.index()];
        let down = self.cable_down[id.index() / 2] || dead;
        let changed = std::mem::replace(&mut link.down, down) != down;
        let needs_care = link.shares_buffer || link.serves_classes || link.cuts_through;
        link.faulty = link.down || needs_care || self.impairments[id.index()].is_some();
        if changed {
            self.forget_orders(id);
        }
    }

    /// Why a link is down.
    pub(in crate::net) fn why_down(&self, id: LinkId) -> LossCause {
        if self.cable_down[id.index() / 2] { LossCause::LinkDown } else { LossCause::NodeDown }
    }

    #[cold]
    pub(in crate::net) fn arrive_faulty(&mut self, id: LinkId, packet: Packet) -> Option<Packet> {
        let link = &self.links[id.index()];
        let to = link.to;
        if link.down {
            self.lose(id, to, self.why_down(id), &packet);
            return None;
        }
        if self.has_credits() {
            self.arrive_with_credits(id, &packet);
        }
        if let Some(impairment) = &mut self.impairments[id.index()] {
            let fate = impairment.draw();
            if let Some(cause) = fate.lost {
                self.lose(id, to, cause, &packet);
                return None;
            }
            if let Some(delay) = fate.copy_after {
                self.payloads.share(packet.payload, 1);
                self.record(to, PacketEvent::Duplicated { link: id }, &packet);
                self.delay(id, packet, delay);
            }
            if let Some(delay) = fate.delayed_by {
                self.record(to, PacketEvent::Reordered { link: id }, &packet);
                self.delay(id, packet, delay);
                return None;
            }
        }
        self.record_arrival(id, to, &packet);
        Some(packet)
    }

    /// Packets of one instant arrive in the order of links, and those of one link in the order in which they were
    /// delayed.
    fn delay(&mut self, link: LinkId, packet: Packet, delay: Span) {
        let time = self.now + delay;
        self.reordered.entry(link).or_default().push((time, packet));
        self.queue.push(time, EventId::new(EventKind::LateArrival, link.0));
    }
}
