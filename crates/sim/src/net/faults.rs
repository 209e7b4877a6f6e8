//! Links that lose, double and delay packets, cables that break and nodes that die.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use super::trace::{Happening, LossCause};
use super::trouble::LinkTrouble;
use super::{Fabric, Packet};
use crate::events::{EventId, EventKind};
use crate::topology::{LinkId, LinkSpec};

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
    }

    /// Kills a node or revives it, with all its cables. The node's driver is told separately.
    pub fn set_node_down(&mut self, node: NodeId, down: bool) {
        self.node_down[node.index()] = down;
        for port in 0..self.ports(node).len() as u16 {
            let link = self.port(node, port);
            self.refresh(link);
            self.refresh(link.reverse());
        }
    }

    /// Sets a link's trouble, or heals the link.
    pub fn set_trouble(&mut self, link: LinkId, trouble: Option<LinkTrouble>) {
        self.troubles[link.index()] = trouble.map(Box::new);
        self.refresh(link);
    }

    /// The packet that a fault took out of a link's order and whose time has come.
    pub fn arrive_stray(&mut self, link: LinkId) -> Option<Packet> {
        let strays = self.strays.get_mut(&link)?;
        let place = strays.iter().position(|&(time, _)| time == self.now)?;
        let (_, packet) = strays.remove(place);
        if strays.is_empty() {
            self.strays.remove(&link);
        }
        let to = self.links[link.index()].to;
        if self.links[link.index()].down {
            self.lose(link, to, self.why_down(link), &packet);
            return None;
        }
        self.came_out(link, to, &packet);
        Some(packet)
    }

    fn refresh(&mut self, id: LinkId) {
        let near = self.near_end(id);
        let link = &mut self.links[id.index()];
        let dead = self.node_down[link.to.index()] || self.node_down[near.index()];
        let down = self.cable_down[id.index() / 2] || dead;
        let changed = std::mem::replace(&mut link.down, down) != down;
        link.troubled = link.down || self.troubles[id.index()].is_some();
        if changed {
            self.forget_orders(id);
        }
    }

    /// Why a link is down.
    pub(super) fn why_down(&self, id: LinkId) -> LossCause {
        if self.cable_down[id.index() / 2] { LossCause::LinkDown } else { LossCause::NodeDown }
    }

    #[cold]
    pub(super) fn arrive_in_trouble(&mut self, id: LinkId, packet: Packet) -> Option<Packet> {
        let link = &self.links[id.index()];
        let to = link.to;
        if link.down {
            self.lose(id, to, self.why_down(id), &packet);
            return None;
        }
        if let Some(trouble) = &mut self.troubles[id.index()] {
            let fate = trouble.draw();
            if let Some(cause) = fate.lost {
                self.lose(id, to, cause, &packet);
                return None;
            }
            if let Some(delay) = fate.copy_after {
                self.payloads.share(packet.payload, 1);
                self.record(to, Happening::Doubled { link: id }, &packet);
                self.stray(id, packet, delay);
            }
            if let Some(delay) = fate.delayed_by {
                self.record(to, Happening::Strayed { link: id }, &packet);
                self.stray(id, packet, delay);
                return None;
            }
        }
        self.came_out(id, to, &packet);
        Some(packet)
    }

    /// Packets of one instant arrive in the order of links, and those of one link in the order in which they were
    /// delayed.
    fn stray(&mut self, link: LinkId, packet: Packet, delay: Span) {
        let time = self.now + delay;
        self.strays.entry(link).or_default().push((time, packet));
        self.queue.push(time, EventId::new(EventKind::Stray, link.0));
    }
}
