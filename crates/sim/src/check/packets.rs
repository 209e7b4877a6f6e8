//! Conservation: every packet is created once, is in one location at a time, and ends once.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::NodeId;

use crate::net::{Packet, PacketEvent, TraceEvent};
use crate::topology::LinkId;

/// Where one packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a node.
    At(NodeId),
    /// In a node, waiting to leave over a lossless link.
    Waiting(LinkId),
    /// In a link's queue or on its wire.
    On(LinkId),
    /// Delayed out of its link's order, and not yet arrived.
    Delayed(LinkId),
}

/// A packet's name.
pub type Name = (u32, u32);

/// The name of a packet.
pub fn name(packet: &Packet) -> Name {
    (packet.src.0, packet.serial)
}

/// True for a packet that comes out of a link at the time that was set when it joined, false for a packet that was
/// delayed. (Two copies of a packet have the same name, but only one of them is due now.)
pub fn in_order(event: &TraceEvent) -> bool {
    event.packet.arrival == event.time
}

/// All packets that were created and have not ended. A packet that a fault has duplicated is in several locations.
#[derive(Default)]
pub struct PacketChecker {
    locations: BTreeMap<Name, Vec<Location>>,
    /// How many locations there are.
    alive: usize,
    /// For each source, the serial of its last packet.
    last: BTreeMap<u32, u32>,
}

impl PacketChecker {
    /// How many packets have not ended.
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// True if the packet or a copy of it is there.
    pub fn is_at(&self, packet: &Packet, location: Location) -> bool {
        self.locations.get(&name(packet)).is_some_and(|locations| locations.contains(&location))
    }

    /// Checks one event, and moves its packet.
    pub fn check(&mut self, event: &TraceEvent, sentences: &mut Vec<String>) {
        let packet = &event.packet;
        let node = Location::At(event.node);
        let moved = match event.kind {
            PacketEvent::Created => {
                self.created(event, sentences);
                return;
            }
            PacketEvent::Waits { link } => self.step(packet, &[node], Some(Location::Waiting(link))),
            PacketEvent::Enqueued { link, .. } => {
                self.step(packet, &[Location::Waiting(link), node], Some(Location::On(link)))
            }
            PacketEvent::Arrived { link } if in_order(event) => {
                self.step(packet, &[Location::On(link), Location::Delayed(link)], Some(node))
            }
            PacketEvent::Arrived { link } => self.step(packet, &[Location::Delayed(link)], Some(node)),
            PacketEvent::Reordered { link } => self.step(packet, &[Location::On(link)], Some(Location::Delayed(link))),
            PacketEvent::Duplicated { link } => {
                let there = self.is_at(packet, Location::On(link));
                self.locations.entry(name(packet)).or_default().push(Location::Delayed(link));
                self.alive += 1;
                there
            }
            // A packet is in a node only while the node works on it, so this is the packet and no copy.
            PacketEvent::Lost { .. } if self.is_at(packet, node) => self.step(packet, &[node], None),
            PacketEvent::Lost { link: Some(link), .. } if in_order(event) => {
                self.step(packet, &[Location::On(link)], None)
            }
            PacketEvent::Lost { link: Some(link), .. } => self.step(packet, &[Location::Delayed(link)], None),
            PacketEvent::Lost { link: None, .. } | PacketEvent::Delivered => self.step(packet, &[node], None),
        };
        if !moved {
            sentences
                .push(format!("the packet was not where this happened, but {:?}", self.locations.get(&name(packet))));
        }
    }

    fn created(&mut self, event: &TraceEvent, sentences: &mut Vec<String>) {
        let packet = &event.packet;
        if event.node != packet.src {
            sentences.push("a packet was created in another's name".to_string());
        }
        let last = self.last.insert(packet.src.0, packet.serial);
        if last.map_or(packet.serial != 0, |last| packet.serial != last.wrapping_add(1)) {
            sentences.push(format!("the packet before it had the serial {last:?}"));
        }
        self.alive += 1;
        if let Some(before) = self.locations.insert(name(packet), vec![Location::At(event.node)]) {
            self.alive -= before.len();
            sentences.push("a packet of that name is still under way".to_string());
        }
    }

    /// Moves one copy from the first of the locations `from` that has one; false if none has.
    fn step(&mut self, packet: &Packet, from: &[Location], to: Option<Location>) -> bool {
        let Some(locations) = self.locations.get_mut(&name(packet)) else { return false };
        let found = from.iter().find_map(|from| locations.iter().position(|location| location == from));
        let Some(index) = found else { return false };
        match to {
            Some(to) => locations[index] = to,
            None => {
                locations.swap_remove(index);
                self.alive -= 1;
                if locations.is_empty() {
                    self.locations.remove(&name(packet));
                }
            }
        }
        true
    }
}
