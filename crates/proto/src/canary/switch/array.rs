//! The static array of descriptors (§3.2): everything that a switch remembers. An entry is free, collects, or has sent
//! what it collected and waits for the sum.

use super::timeout::TimeoutStep;
use crate::canary::vector::Form;
use crate::canary::wire::Header;
use crate::contract::config::SharedSwitchConfig;
use crate::contract::ids::{JobId, PortId, PortSet};
use crate::contract::time::{Span, Time};
use crate::contract::values::Values;
use crate::contract::wire::COMMON_LEN;
use crate::parts::memory::heap_bytes;
use crate::parts::slot_lists::SlotLists;

/// What an entry in use does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Collects contributions until its time is up.
    Open,
    /// Has sent what it had; later contributions are stragglers.
    Sent,
}

/// What a block is known by: application and number (§3.4), and which of its issues it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// The application.
    pub job: JobId,
    /// The issue.
    pub attempt: u8,
    /// The number.
    pub id: u32,
}

/// One entry. Its accumulator lies apart.
#[derive(Clone, Hash)]
pub struct Descriptor {
    /// What it does.
    pub state: State,
    /// Its block.
    pub block: BlockId,
    /// Elements of its vector.
    pub elements: u16,
    /// The first packet's common header, for the one that the switch makes ...
    pub common: [u8; COMMON_LEN],
    /// ... and its own header, which takes in what later packets say.
    pub header: Header,
    /// Where contributions came from ...
    pub children: PortSet,
    /// ... and the last one.
    pub last_from: PortId,
    /// Contributions that have come in ...
    pub passed: u16,
    /// ... of those that are expected here.
    pub full: u16,
    /// Stragglers that come before this are collected again.
    pub alone_until: Time,
    /// When its time is up, or its lease.
    pub due: Time,
    /// How long it waits for more.
    pub wait: TimeoutStep,
    /// When the first contribution came ...
    pub first_at: Time,
    /// ... and the last one.
    pub last_at: Time,
}

/// Entries that wait for the sum, in the order of their leases.
const SENT: usize = 0;
/// Entries that have all that they collect for, and go on at once.
const FULL: usize = 1;
/// The lists from here on are of those that collect, one for each step of the wait, in the order in which their time is up.
const OPEN: usize = 2;

/// The list of those that collect for so long.
fn open_list(wait: TimeoutStep) -> usize {
    OPEN + wait.index()
}

/// No descriptor.
const FREE: u32 = u32::MAX;

/// The array. Descriptors lie apart from their entries, and the one that became free last is taken first: blocks under
/// way are few beside the entries that they pass through, and stay in a processor's cache.
#[derive(Clone, Hash)]
pub struct Array {
    /// For each entry the number of its descriptor.
    entries: Vec<u32>,
    /// Room for as many as there are entries; those that were ever in use.
    descriptors: Vec<Descriptor>,
    /// Their accumulators.
    lanes: Vec<u8>,
    /// Descriptors that no entry has.
    spare: Vec<u32>,
    lane_bytes: usize,
    lists: SlotLists<u32>,
    part_len: u32,
    parts: u32,
    lease: Span,
    /// When time is up for the last one of each list of those that collect.
    last_due: Vec<Time>,
    /// Entries in use.
    pub held: u32,
    /// The most that were in use.
    pub peak: u32,
    values: Values,
}

impl Array {
    /// An array whose entries are free, and collect for one of so many waits.
    pub fn new(values: Values, config: &SharedSwitchConfig, waits: usize) -> Array {
        let entries = config.options.count("descriptors") as u32;
        let parts = config.options.count("partitions") as u32;
        let lane_bytes = values.buffer_len(4, usize::from(config.elements_per_packet));
        Array {
            entries: vec![FREE; entries as usize],
            descriptors: Vec::with_capacity(entries as usize),
            lanes: Vec::with_capacity(entries as usize * lane_bytes),
            spare: Vec::with_capacity(entries as usize),
            lane_bytes,
            lists: SlotLists::new(OPEN + waits, entries),
            part_len: entries / parts,
            parts,
            lease: config.options.time("lease"),
            last_due: vec![Time::ZERO; waits],
            held: 0,
            peak: 0,
            values,
        }
    }

    /// Bytes on the heap of an array whose entries collect for one of so many waits.
    pub fn bytes_of(values: Values, config: &SharedSwitchConfig, waits: usize) -> u64 {
        let lane_bytes = values.buffer_len(4, usize::from(config.elements_per_packet));
        let each = 2 * size_of::<u32>() + size_of::<Descriptor>() + lane_bytes;
        let count = config.options.count("descriptors") as usize;
        (count * each + waits * size_of::<Time>() + SlotLists::<u32>::bytes_of(OPEN + waits, count)) as u64
    }

    /// Number of entries.
    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Where a block's entry is. Numbers of one application follow each other in its part of the array, from a place
    /// that its id is hashed to: a window of blocks never collides with itself. Issues of one block lie apart.
    #[inline]
    pub fn place(&self, block: BlockId) -> u32 {
        let start =
            u32::from(block.job.0).wrapping_mul(0x9e37_79b1) ^ u32::from(block.attempt).wrapping_mul(0x85eb_ca6b);
        let part = u32::from(block.job.0) % self.parts;
        part * self.part_len + start.wrapping_add(block.id) % self.part_len
    }

    /// The entry at a place.
    #[inline]
    pub fn get(&self, place: u32) -> Option<&Descriptor> {
        self.descriptors.get(self.entries[place as usize] as usize)
    }

    /// The same, to write to.
    #[inline]
    pub fn get_mut(&mut self, place: u32) -> Option<&mut Descriptor> {
        self.descriptors.get_mut(self.entries[place as usize] as usize)
    }

    /// All entries in use.
    pub fn iter(&self) -> impl Iterator<Item = &Descriptor> {
        self.entries.iter().filter_map(|&number| self.descriptors.get(number as usize))
    }

    /// Takes a free entry for a block that waits for more, until `due` or a little later: time is up in the order of
    /// arrival, so that nothing is searched for.
    pub fn open(&mut self, place: u32, descriptor: Descriptor, form: Form, vector: &[u8]) {
        self.take(place, descriptor);
        self.reopen(place, form, vector);
    }

    /// Collects again, from this vector on; `due` and `wait` were set.
    pub fn reopen(&mut self, place: u32, form: Form, vector: &[u8]) {
        if let Some(entry) = self.descriptors.get_mut(self.entries[place as usize] as usize) {
            let last_due = &mut self.last_due[entry.wait.index()];
            *last_due = entry.due.max(*last_due);
            (entry.due, entry.state) = (*last_due, State::Open);
            self.lists.push(open_list(entry.wait), place);
        }
        form.store(self.lanes_mut(place, form.lane_bytes(vector.len())), vector);
    }

    /// Takes a free entry for a block that goes on at once.
    pub fn pass(&mut self, now: Time, place: u32, descriptor: Descriptor) {
        self.take(place, Descriptor { state: State::Sent, ..descriptor });
        self.renew(now, place);
    }

    fn take(&mut self, place: u32, descriptor: Descriptor) {
        debug_assert_eq!(self.entries[place as usize], FREE);
        self.entries[place as usize] = match self.spare.pop() {
            Some(number) => {
                self.descriptors[number as usize] = descriptor;
                number
            }
            None => {
                self.descriptors.push(descriptor);
                self.lanes.resize(self.descriptors.len() * self.lane_bytes, 0);
                self.descriptors.len() as u32 - 1
            }
        };
        self.held += 1;
        self.peak = self.peak.max(self.held);
    }

    /// So many bytes of the accumulator of an entry in use.
    #[inline]
    fn lanes_mut(&mut self, place: u32, bytes: usize) -> &mut [u8] {
        let first = self.entries[place as usize] as usize * self.lane_bytes;
        &mut self.lanes[first..][..bytes]
    }

    /// Adds a vector to an entry's accumulator.
    #[inline]
    pub fn add(&mut self, place: u32, form: Form, vector: &[u8]) {
        form.add(self.lanes_mut(place, form.lane_bytes(vector.len())), vector);
    }

    /// Writes an entry's accumulator to a vector in fixed point.
    #[inline]
    pub fn load(&self, place: u32, vector: &mut [u8]) {
        let first = self.entries[place as usize] as usize * self.lane_bytes;
        (self.values.fixed().load)(&self.lanes[first..][..vector.len()], vector);
    }

    /// Nothing is missing: the entry's time is up.
    pub fn fill(&mut self, now: Time, place: u32) {
        if let Some(entry) = self.get_mut(place) {
            entry.due = now;
        }
        self.lists.push(FULL, place);
    }

    /// The accumulator is on its way; the entry waits for the sum.
    pub fn sent(&mut self, now: Time, place: u32) {
        if let Some(entry) = self.get_mut(place) {
            entry.state = State::Sent;
        }
        self.renew(now, place);
    }

    /// Somebody needs the entry still. Leases end at few distinct times, so that a driver's timer is rarely set anew.
    pub fn renew(&mut self, now: Time, place: u32) {
        let grain = (self.lease.0 / 8).max(1);
        let due = Time((now + self.lease).0.div_ceil(grain).saturating_mul(grain));
        if let Some(entry) = self.get_mut(place) {
            entry.due = due;
        }
        self.lists.push(SENT, place);
    }

    /// Frees an entry.
    pub fn free(&mut self, place: u32) {
        self.lists.remove(place);
        let number = std::mem::replace(&mut self.entries[place as usize], FREE);
        if number != FREE {
            self.spare.push(number);
            self.held -= 1;
        }
    }

    /// An entry that collects although its time is up; true if that is because it has all.
    pub fn due_to_send(&self, now: Time) -> Option<(u32, bool)> {
        (FULL..OPEN + self.last_due.len()).find_map(|list| Some((self.first_due(list, now)?, list == FULL)))
    }

    /// An entry whose lease is over.
    pub fn expired(&self, now: Time) -> Option<u32> {
        self.first_due(SENT, now)
    }

    #[inline]
    fn first_due(&self, list: usize, now: Time) -> Option<u32> {
        self.lists.first(list).filter(|&place| self.get(place).is_some_and(|entry| entry.due <= now))
    }

    /// When the first of either comes.
    pub fn next_due(&self) -> Option<Time> {
        (SENT..OPEN + self.last_due.len()).filter_map(|list| Some(self.get(self.lists.first(list)?)?.due)).min()
    }

    /// Frees all entries of a job.
    pub fn free_job(&mut self, job: JobId) {
        for place in 0..self.len() {
            if self.get(place).is_some_and(|entry| entry.block.job == job) {
                self.free(place);
            }
        }
    }

    /// Bytes on the heap: all descriptors with their accumulators, used or not.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.entries)
            + heap_bytes(&self.descriptors)
            + heap_bytes(&self.lanes)
            + heap_bytes(&self.spare)
            + heap_bytes(&self.last_due)
            + self.lists.memory_bytes()
    }
}
