//! Switches that cut through (Kermani and Kleinrock, 1979): they begin to forward a packet when its head has come in.
//!
//! A link into such a switch brings a packet when its head is there, and the next link may begin at once, so that cutting
//! through costs no event of its own. As a whole come packets for hosts and for the switch's own programs, and those on a link
//! that is slower than another one of the switch, which would run out of bytes.

use tributary_proto::contract::time::{Span, Time};

use super::Fabric;
use crate::net::link::Link;
use crate::net::packet::Packet;
use crate::net::trace::LossCause;
use crate::topology::{Graph, LinkId};

/// Bytes on a link after which a switch forwards a packet: preamble and headers, all of the shortest packet.
const HEAD: u64 = 84;

impl Fabric {
    /// Makes all switches cut through, before anything is sent.
    pub fn set_cut_through(&mut self, graph: &Graph) {
        for id in (0..self.links.len() as u32).map(LinkId) {
            let (to, rate) = (graph.ends(id).1, graph.spec(id).rate);
            let is_slower = self.ports(to).iter().any(|&next| graph.spec(next).rate > rate);
            let link = &mut self.links[id.index()];
            link.cuts_through = graph.switch_index(to).is_some() && !is_slower;
            link.faulty |= link.cuts_through;
        }
    }

    /// True if any switch cuts through.
    pub fn cuts_through(&self) -> bool {
        self.links.iter().any(|link| link.cuts_through)
    }

    /// Sends a packet into a link whose far end cuts through; false if the queue is full.
    pub(super) fn send_ahead(&mut self, id: LinkId, packet: Packet) -> bool {
        let link = &mut self.links[id.index()];
        let mut flags = packet.flags;
        let Some(whole) = link.enqueue(self.now, packet.bytes, &mut flags) else {
            self.lose(id, self.near_end(id), LossCause::QueueFull, &packet);
            return false;
        };
        let arrival = link.arrival_of(&packet, whole);
        self.depart_with(id, Packet { arrival, flags, ..packet });
        true
    }
}

impl Link {
    /// When the far end has what it needs of a packet that is there as a whole at `whole`.
    pub(in crate::net) fn arrival_of(&self, packet: &Packet, whole: Time) -> Time {
        let passes = packet.dst != self.to && !packet.flags.every_hop();
        if passes { Time(whole.0 - self.head_start(packet.bytes.into()).0) } else { whole }
    }

    /// How long before its end the head of a packet of this length is there for the far end.
    pub fn head_start(&self, bytes: u64) -> Span {
        if self.cuts_through { self.transmission(bytes.saturating_sub(HEAD)) } else { Span::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::ids::NodeId;

    use super::*;
    use crate::topology::{LinkSpec, Rate};

    #[test]
    fn what_passes_is_there_with_its_head_and_what_ends_there_as_a_whole() {
        let rate = Rate(10_000_000_000);
        let spec = LinkSpec { rate, delay: Span::ZERO, queue_bytes: 1 << 20, mark_bytes: None };
        let mut link = Link::new(&spec, NodeId(0), NodeId(5), 0, Span::ZERO, 0);
        let (passes, ends) = (Packet { dst: NodeId(1), bytes: 1_084, ..Packet::BLANK }, NodeId(5));
        let whole = Time(1_000_000_000);
        assert_eq!(link.arrival_of(&passes, whole), whole, "it stores and forwards");
        link.cuts_through = true;
        assert_eq!(link.arrival_of(&passes, whole), Time(whole.0 - rate.time_of(1_000).0));
        assert_eq!(link.arrival_of(&Packet { dst: ends, ..passes }, whole), whole);
        assert_eq!(link.arrival_of(&Packet { flags: passes.flags.with_every_hop(true), ..passes }, whole), whole);
        assert_eq!(link.arrival_of(&Packet { bytes: 84, ..passes }, whole), whole, "it is its own head");
    }
}
