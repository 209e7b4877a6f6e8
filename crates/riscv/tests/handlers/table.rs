//! Sparse blocks in plain Rust: a table that spills, and an array.

use crate::bench::{CHILD, sparse_packet};
use crate::element::Element;

/// What a switch keeps of one block, and the packets that it has sent.
pub struct Table {
    element: Element,
    is_hash: bool,
    block: u32,
    capacity: usize,
    places: Vec<Option<(u16, u32)>>,
    spilled: Vec<(u16, u32)>,
    shards: u16,
    sent: Vec<Vec<u8>>,
}

impl Table {
    pub fn new(is_hash: bool, element: Element, block: u32, places: u32, capacity: u32) -> Table {
        let places = vec![None; places as usize];
        Table { element, is_hash, block, capacity: capacity as usize, places, spilled: vec![], shards: 0, sent: vec![] }
    }

    /// Takes in a pair: a slot is its first comer's, the same index is added, any other spills.
    pub fn add(&mut self, index: u16, value: u32) {
        let place = if self.is_hash { usize::from(index) % self.places.len() } else { usize::from(index) };
        match &mut self.places[place] {
            Some((there, sum)) if *there == index => *sum = self.element.add(*sum, value),
            Some(_) => {
                self.spilled.push((index, value));
                if self.spilled.len() == self.capacity {
                    let pairs = std::mem::take(&mut self.spilled);
                    self.send(&pairs, false);
                }
            }
            free => *free = Some((index, value)),
        }
    }

    /// All children are in: what has spilled and was not sent, then the table in order, the last packet with the count.
    pub fn end(&mut self) {
        let pairs: Vec<_> = self.spilled.drain(..).chain(self.places.iter_mut().filter_map(Option::take)).collect();
        let mut packets: Vec<&[(u16, u32)]> = pairs.chunks(self.capacity).collect();
        let last = packets.pop().unwrap_or_default();
        packets.into_iter().for_each(|packet| self.send(packet, false));
        self.send(last, true);
        self.shards = 0;
    }

    fn send(&mut self, pairs: &[(u16, u32)], ends: bool) {
        let shard = (self.shards, if ends { self.shards + 1 } else { 0 });
        self.shards += 1;
        self.sent.push(sparse_packet(self.block, CHILD, shard, self.element, pairs));
    }

    /// The packets since the last look.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent)
    }
}
