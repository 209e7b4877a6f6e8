//! What is due, in order of time; of the same time, in order of insertion.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::time::Time;

use super::Flight;
use super::nodes::Node;

/// Something that happens to a node.
pub enum Event {
    Arrive {
        node: Node,
        port: PortId,
        flight: Flight,
    },
    Submit {
        host: usize,
        collective: Collective,
    },
    /// Obsolete unless the node's timer is still set to this time.
    Timer {
        node: Node,
    },
}

struct Entry {
    at: Time,
    number: u64,
    event: Event,
}

/// The queue.
#[derive(Default)]
pub struct EventQueue {
    heap: BinaryHeap<Entry>,
    next_number: u64,
}

impl EventQueue {
    pub fn push(&mut self, at: Time, event: Event) {
        self.heap.push(Entry { at, number: self.next_number, event });
        self.next_number += 1;
    }

    /// The next event, unless it is after `limit`.
    pub fn pop_until(&mut self, limit: Time) -> Option<(Time, Event)> {
        self.heap.peek().filter(|entry| entry.at <= limit)?;
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, since the heap gives the greatest first.
    fn cmp(&self, other: &Entry) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
