//! Conservation: every packet is made once, is at one place at a time, and ends once.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::NodeId;

use crate::net::{Happening, Packet, TraceEvent};
use crate::topology::LinkId;

/// The place of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a node.
    At(NodeId),
    /// In a node, waiting to leave over a lossless link.
    Waiting(LinkId),
    /// In a link's queue or on its wire.
    On(LinkId),
    /// Delayed behind a link's order, and not yet arrived.
    Astray(LinkId),
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

/// All packets that were made and have not ended. A packet that a fault has doubled is in several places.
#[derive(Default)]
pub struct PacketChecker {
    places: BTreeMap<Name, Vec<Place>>,
    /// How many places there are.
    alive: usize,
    /// For each maker, the serial of its last packet.
    last: BTreeMap<u32, u32>,
}

impl PacketChecker {
    /// How many packets have not ended.
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// True if the packet or a copy of it is at this place.
    pub fn is_at(&self, packet: &Packet, place: Place) -> bool {
        self.places.get(&name(packet)).is_some_and(|places| places.contains(&place))
    }

    /// Takes one step.
    pub fn check(&mut self, event: &TraceEvent, sentences: &mut Vec<String>) {
        let packet = &event.packet;
        let node = Place::At(event.node);
        let moved = match event.what {
            Happening::Made => {
                self.made(event, sentences);
                return;
            }
            Happening::Waits { link } => self.step(packet, &[node], Some(Place::Waiting(link))),
            Happening::Joined { link, .. } => self.step(packet, &[Place::Waiting(link), node], Some(Place::On(link))),
            Happening::Arrived { link } if in_order(event) => {
                self.step(packet, &[Place::On(link), Place::Astray(link)], Some(node))
            }
            Happening::Arrived { link } => self.step(packet, &[Place::Astray(link)], Some(node)),
            Happening::Strayed { link } => self.step(packet, &[Place::On(link)], Some(Place::Astray(link))),
            Happening::Doubled { link } => {
                let there = self.is_at(packet, Place::On(link));
                self.places.entry(name(packet)).or_default().push(Place::Astray(link));
                self.alive += 1;
                there
            }
            // A packet is in a node only while the node works on it, so this is the packet and no copy.
            Happening::Lost { .. } if self.is_at(packet, node) => self.step(packet, &[node], None),
            Happening::Lost { link: Some(link), .. } if in_order(event) => self.step(packet, &[Place::On(link)], None),
            Happening::Lost { link: Some(link), .. } => self.step(packet, &[Place::Astray(link)], None),
            Happening::Lost { link: None, .. } | Happening::Taken => self.step(packet, &[node], None),
        };
        if !moved {
            sentences.push(format!("the packet was not where this happened, but {:?}", self.places.get(&name(packet))));
        }
    }

    fn made(&mut self, event: &TraceEvent, sentences: &mut Vec<String>) {
        let packet = &event.packet;
        if event.node != packet.src {
            sentences.push("a packet was made in another's name".to_string());
        }
        let last = self.last.insert(packet.src.0, packet.serial);
        if last.map_or(packet.serial != 0, |last| packet.serial != last.wrapping_add(1)) {
            sentences.push(format!("the packet before it had the serial {last:?}"));
        }
        self.alive += 1;
        if let Some(before) = self.places.insert(name(packet), vec![Place::At(event.node)]) {
            self.alive -= before.len();
            sentences.push("a packet of that name is still under way".to_string());
        }
    }

    /// Moves one copy from the first of the places `from` that has one; false if none has one.
    fn step(&mut self, packet: &Packet, from: &[Place], to: Option<Place>) -> bool {
        let Some(places) = self.places.get_mut(&name(packet)) else { return false };
        let found = from.iter().find_map(|from| places.iter().position(|place| place == from));
        let Some(index) = found else { return false };
        match to {
            Some(to) => places[index] = to,
            None => {
                places.swap_remove(index);
                self.alive -= 1;
                if places.is_empty() {
                    self.places.remove(&name(packet));
                }
            }
        }
        true
    }
}
