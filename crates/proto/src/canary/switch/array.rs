//! The static array of descriptors (§3.2): everything that a switch remembers. An entry is free, collects
//! contributions, or has sent its partial sum and waits for the block's sum.

use super::timeout::TimeoutStep;
use crate::canary::vector::Codec;
use crate::canary::wire::Header;
use crate::contract::config::SharedSwitchConfig;
use crate::contract::ids::{JobId, PortId, PortSet};
use crate::contract::state::exclude_from_state;
use crate::contract::time::{Span, Time};
use crate::contract::values::Values;
use crate::contract::wire::COMMON_LEN;
use crate::heap::heap_bytes;
use crate::reliability::slot_lists::SlotLists;

/// The state of an entry in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Collects contributions until its wait is over.
    Open,
    /// Has sent its partial sum; later contributions are stragglers.
    Sent,
}

/// The identity of a block: application and number (§3.4), and the issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// The application.
    pub job: JobId,
    /// The issue.
    pub attempt: u8,
    /// The number.
    pub id: u32,
}

/// One entry. Its accumulator is stored apart.
#[derive(Clone, Hash)]
pub struct Descriptor {
    /// The entry's state.
    pub state: State,
    /// The entry's block.
    pub block: BlockId,
    /// Elements of the block's vector.
    pub elements: u16,
    /// The common header of the first packet, which the switch's own packet gets.
    pub common: [u8; COMMON_LEN],
    /// Canary's header of the first packet; what later packets say is joined to it.
    pub header: Header,
    /// Ports that contributions came from.
    pub children: PortSet,
    /// The port that the last contribution came from.
    pub last_from: PortId,
    /// Contributions that have come in.
    pub passed: u16,
    /// Contributions that are expected here.
    pub full: u16,
    /// Stragglers that come before this time are collected again.
    pub alone_until: Time,
    /// When the wait or the lease is over.
    pub due: Time,
    /// How long the entry waits for more contributions.
    pub wait: TimeoutStep,
    /// When the first contribution came.
    pub first_at: Time,
    /// When the last contribution came.
    pub last_at: Time,
}

/// The list of entries that wait for the sum, in the order of their leases.
const SENT: usize = 0;
/// The list of entries that have all contributions that they collect for. They go on at once.
const FULL: usize = 1;
/// The first of the lists of entries that collect. Each step of the wait has its list, in the order in which the waits
/// end.
const OPEN: usize = 2;

/// The list of entries that collect for so long.
fn open_list(wait: TimeoutStep) -> usize {
    OPEN + wait.index()
}

const NEVER: Time = Time(u64::MAX);
/// No descriptor.
const FREE: u32 = u32::MAX;

/// Nothing is due before these times. They say no more than the lists, but without a look at the first entries, which
/// seldom lie in a processor's cache.
#[derive(Clone)]
struct Soonest {
    /// No partial sum is to be sent before.
    send: Time,
    /// No lease is over before.
    lease: Time,
}

exclude_from_state!(Soonest);

/// The array. Descriptors are stored apart from entries, and the descriptor that became free last is taken first. Few
/// blocks are under way at a time beside the entries that they pass through, so their descriptors stay in a processor's
/// cache.
#[derive(Clone, Hash)]
pub struct Array {
    /// For each entry the number of its descriptor.
    entries: Vec<u32>,
    /// Descriptors that were ever in use. There is room for as many as there are entries.
    descriptors: Vec<Descriptor>,
    /// The descriptors' accumulators.
    lanes: Vec<u8>,
    /// Descriptors that no entry uses.
    spare: Vec<u32>,
    lane_bytes: usize,
    /// The lists of entries hold the numbers of their descriptors.
    lists: SlotLists<u32>,
    partition_len: u32,
    partitions: u32,
    lease: Span,
    /// For each list of entries that collect: when the wait of the last entry is over.
    last_due: Vec<Time>,
    soonest: Soonest,
    /// Entries in use.
    pub in_use: u32,
    /// The most that were in use.
    pub peak: u32,
    values: Values,
}

impl Array {
    /// An array of free entries, for this many steps of the wait.
    pub fn new(values: Values, config: &SharedSwitchConfig, waits: usize) -> Array {
        let entries = config.options.count("descriptors") as u32;
        let partitions = config.options.count("partitions") as u32;
        let lane_bytes = values.buffer_len(4, usize::from(config.elements_per_packet));
        Array {
            entries: vec![FREE; entries as usize],
            descriptors: Vec::with_capacity(entries as usize),
            lanes: Vec::with_capacity(entries as usize * lane_bytes),
            spare: Vec::with_capacity(entries as usize),
            lane_bytes,
            lists: SlotLists::new(OPEN + waits, entries),
            partition_len: entries / partitions,
            partitions,
            lease: config.options.time("lease"),
            last_due: vec![Time::ZERO; waits],
            soonest: Soonest { send: NEVER, lease: NEVER },
            in_use: 0,
            peak: 0,
            values,
        }
    }

    /// Bytes on the heap of an array whose entries collect for one of this many waits.
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

    /// Where a block's entry is. Blocks with consecutive numbers have consecutive entries in the application's part of
    /// the array. Their start is a hash of the application, so that a window of blocks never collides with itself, and
    /// of the issue, so that issues of one block lie apart.
    #[inline]
    pub fn index_of(&self, block: BlockId) -> u32 {
        let start =
            u32::from(block.job.0).wrapping_mul(0x9e37_79b1) ^ u32::from(block.attempt).wrapping_mul(0x85eb_ca6b);
        let partition = u32::from(block.job.0) % self.partitions;
        partition * self.partition_len + start.wrapping_add(block.id) % self.partition_len
    }

    /// The entry at an index.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&Descriptor> {
        self.descriptors.get(self.entries[index as usize] as usize)
    }

    /// The entry at an index, to write to.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut Descriptor> {
        self.descriptors.get_mut(self.entries[index as usize] as usize)
    }

    /// All entries in use.
    pub fn iter(&self) -> impl Iterator<Item = &Descriptor> {
        self.entries.iter().filter_map(|&number| self.descriptors.get(number as usize))
    }

    /// Takes a free entry for a block that waits for more contributions, until `due` or a little later: waits end in
    /// the order of arrival, so that nothing is searched for.
    pub fn open(&mut self, index: u32, descriptor: Descriptor, codec: Codec, vector: &[u8]) {
        self.take(index, descriptor);
        self.reopen(index, codec, vector);
    }

    /// Collects again, beginning with this vector. The caller has set `due` and `wait`.
    pub fn reopen(&mut self, index: u32, codec: Codec, vector: &[u8]) {
        let number = self.entries[index as usize];
        if let Some(entry) = self.descriptors.get_mut(number as usize) {
            let last_due = &mut self.last_due[entry.wait.index()];
            *last_due = entry.due.max(*last_due);
            (entry.due, entry.state) = (*last_due, State::Open);
            self.soonest.send = self.soonest.send.min(entry.due);
            self.lists.push(open_list(entry.wait), number);
        }
        codec.store(self.lanes_mut(index, codec.lane_bytes(vector.len())), vector);
    }

    /// Takes a free entry for a block that goes on at once.
    pub fn pass(&mut self, now: Time, index: u32, descriptor: Descriptor) {
        self.take(index, Descriptor { state: State::Sent, ..descriptor });
        self.renew(now, index);
    }

    fn take(&mut self, index: u32, descriptor: Descriptor) {
        debug_assert_eq!(self.entries[index as usize], FREE);
        self.entries[index as usize] = match self.spare.pop() {
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
        self.in_use += 1;
        self.peak = self.peak.max(self.in_use);
    }

    /// This many bytes of the accumulator of an entry in use.
    #[inline]
    fn lanes_mut(&mut self, index: u32, bytes: usize) -> &mut [u8] {
        let first = self.entries[index as usize] as usize * self.lane_bytes;
        &mut self.lanes[first..][..bytes]
    }

    /// Adds a vector to an entry's accumulator.
    #[inline]
    pub fn add(&mut self, index: u32, codec: Codec, vector: &[u8]) {
        codec.add(self.lanes_mut(index, codec.lane_bytes(vector.len())), vector);
    }

    /// Writes an entry's accumulator to a vector in fixed point.
    #[inline]
    pub fn load(&self, index: u32, vector: &mut [u8]) {
        let first = self.entries[index as usize] as usize * self.lane_bytes;
        (self.values.fixed().load)(&self.lanes[first..][..vector.len()], vector);
    }

    /// No contribution is missing: the entry's wait is over.
    pub fn fill(&mut self, now: Time, index: u32) {
        let number = self.entries[index as usize];
        if let Some(entry) = self.descriptors.get_mut(number as usize) {
            entry.due = now;
            self.soonest.send = self.soonest.send.min(now);
            self.lists.push(FULL, number);
        }
    }

    /// The partial sum was sent; the entry waits for the sum.
    pub fn sent(&mut self, now: Time, index: u32) {
        if let Some(entry) = self.get_mut(index) {
            entry.state = State::Sent;
        }
        self.renew(now, index);
    }

    /// Renews the lease of an entry that is still needed. Leases end at few distinct times, so that a driver's timer is
    /// rarely set again.
    pub fn renew(&mut self, now: Time, index: u32) {
        let grain = (self.lease.0 / 8).max(1);
        let due = Time((now + self.lease).0.div_ceil(grain).saturating_mul(grain));
        let number = self.entries[index as usize];
        if let Some(entry) = self.descriptors.get_mut(number as usize) {
            entry.due = due;
            self.soonest.lease = self.soonest.lease.min(due);
            self.lists.push(SENT, number);
        }
    }

    /// Frees an entry.
    pub fn free(&mut self, index: u32) {
        let number = std::mem::replace(&mut self.entries[index as usize], FREE);
        if number != FREE {
            self.lists.remove(number);
            self.spare.push(number);
            self.in_use -= 1;
        }
    }

    /// An entry that collects although its wait is over; true if no contribution is missing.
    #[inline]
    pub fn due_to_send(&mut self, now: Time) -> Option<(u32, bool)> {
        if now < self.soonest.send {
            debug_assert!(self.filled(FULL).all(|list| self.first_due(list, now).is_none()));
            return None;
        }
        let due = self.filled(FULL).find_map(|list| Some((self.first_due(list, now)?, list == FULL)));
        if due.is_none() {
            self.soonest.send = self.filled(FULL).filter_map(|list| self.due_of_first(list)).min().unwrap_or(NEVER);
        }
        due
    }

    /// An entry whose lease is over.
    pub fn expired(&mut self, now: Time) -> Option<u32> {
        let expired = self.first_due(SENT, now);
        if expired.is_none() {
            self.soonest.lease = self.due_of_first(SENT).unwrap_or(NEVER);
        }
        expired
    }

    #[inline]
    fn first_due(&self, list: usize, now: Time) -> Option<u32> {
        self.first_of(list).filter(|entry| entry.due <= now).map(|entry| self.index_of(entry.block))
    }

    #[inline]
    fn first_of(&self, list: usize) -> Option<&Descriptor> {
        self.descriptors.get(self.lists.first(list)? as usize)
    }

    fn due_of_first(&self, list: usize) -> Option<Time> {
        self.first_of(list).map(|entry| entry.due)
    }

    /// When the first wait or lease is over.
    pub fn next_due(&self) -> Option<Time> {
        self.filled(SENT).filter_map(|list| self.due_of_first(list)).min()
    }

    /// The same, if it is before `limit`.
    #[inline]
    pub fn next_due_before(&self, limit: Time) -> Option<Time> {
        if self.soonest.send.min(self.soonest.lease) >= limit {
            debug_assert!(self.next_due().is_none_or(|due| due >= limit));
            return None;
        }
        self.next_due().filter(|&due| due < limit)
    }

    /// The lists that hold any entry, from this one on.
    fn filled(&self, from: usize) -> impl Iterator<Item = usize> {
        let mut lists = from..OPEN + self.last_due.len();
        std::iter::from_fn(move || self.lists.next_filled(&mut lists))
    }

    /// Frees all entries of a job.
    pub fn free_job(&mut self, job: JobId) {
        for index in 0..self.len() {
            if self.get(index).is_some_and(|entry| entry.block.job == job) {
                self.free(index);
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
