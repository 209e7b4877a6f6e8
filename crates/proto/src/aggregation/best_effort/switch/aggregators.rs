//! The memory of a switch: aggregators that any block of any job may take, each with an accumulator.

use tributary_numeric::BlockExponent;

use super::super::codec::{Codec, widest_lanes};
use super::super::options::Memory;
use super::super::wire::NOBODY;
use crate::contract::ids::{JobId, PortId, Rank};
use crate::contract::state::exclude_from_state;
use crate::contract::tensor::Spec;
use crate::contract::time::{Span, Time};
use crate::contract::values::Values;
use crate::heap::heap_bytes;
use crate::reliability::slot_lists::SlotLists;
use tributary_numeric::splitmix64;

/// An aggregator in use.
#[derive(Clone, Hash)]
pub struct Aggregator {
    /// The job.
    pub job: JobId,
    /// The block's position in the job's table.
    pub position: u16,
    /// Elements of each vector.
    pub elements: u16,
    /// Some rank's block did not fit the scale, so there is no sum.
    pub overflow: bool,
    /// No vector was brought: ranks tell their exponents.
    pub probe: bool,
    /// A contribution was marked.
    pub ecn: bool,
    /// Vectors are in the accumulator.
    pub filled: bool,
    /// How many ranks have contributed.
    pub count: u16,
    /// How many ranks the switch sums for.
    pub expected: u16,
    /// The aggregator becomes free as soon as its contents have left.
    pub leaves: bool,
    /// The rank whose packet caused that.
    pub resender: Rank,
    /// The port of the last contribution.
    pub last_from: PortId,
    /// The scale of the vectors.
    pub scale: BlockExponent,
    /// The largest magnitude of all ranks' blocks.
    pub exponent: BlockExponent,
    /// The block's collective.
    pub spec: Spec,
    /// How many times the position was moved, according to the contributions.
    pub index: u32,
    /// When the lease ends.
    pub due: Time,
    /// The rank whose question made the sum leave again; nobody's while it has left once at most.
    pub asker: Rank,
    /// The bucket that the hash gives, if blocks are placed by a hash.
    bucket: u32,
}

impl Aggregator {
    /// True if all ranks have contributed.
    pub fn is_complete(&self) -> bool {
        self.count >= self.expected
    }
}

/// The list of aggregators in use, in the order of their leases.
const KEPT: usize = 0;
/// The list of aggregators whose contents must be sent.
const LEAVING: usize = 1;

/// No aggregator.
const FREE: u32 = u32::MAX;

/// All aggregators of a switch.
#[derive(Clone, Hash)]
pub struct Aggregators {
    memory: Memory,
    /// The aggregators that were ever in use, with room for all.
    entries: Vec<Aggregator>,
    lanes: Vec<u8>,
    lane_bytes: usize,
    spare: Vec<u32>,
    lists: SlotLists<u32>,
    /// When a lease ends that was renewed at a time: packets of one batch come at one time.
    lease_ends: (Time, Time),
    /// For each bucket, whether it is taken. Empty unless blocks are placed by a hash.
    taken: Vec<bool>,
    /// How many are in use.
    pub in_use: u32,
    /// The most that were in use at once.
    pub peak: u32,
}

/// When a lease ends that begins now.
fn lease_end(lease: Span, now: Time) -> Time {
    let grain = (lease.0 / 8).max(1);
    Time((now + lease).0.div_ceil(grain).saturating_mul(grain))
}

impl Aggregators {
    /// Aggregators none of which is in use.
    pub fn new(values: Values, memory: Memory, elements_per_packet: u16) -> Aggregators {
        let count = memory.aggregators as usize;
        let lane_bytes = widest_lanes(values, elements_per_packet);
        Aggregators {
            memory,
            entries: Vec::with_capacity(count),
            lanes: vec![0; count * lane_bytes],
            lane_bytes,
            spare: Vec::with_capacity(count),
            lists: SlotLists::new(2, memory.aggregators),
            lease_ends: (Time::ZERO, lease_end(memory.lease, Time::ZERO)),
            taken: if memory.by_hash { vec![false; count] } else { Vec::new() },
            in_use: 0,
            peak: 0,
        }
    }

    /// Bytes on the heap that the aggregators take.
    pub fn bytes_of(values: Values, memory: Memory, elements_per_packet: u16) -> u64 {
        let bucket = if memory.by_hash { size_of::<bool>() } else { 0 };
        let each = size_of::<Aggregator>() + widest_lanes(values, elements_per_packet) + size_of::<u32>() + bucket;
        let count = memory.aggregators as usize;
        (count * each + SlotLists::<u32>::bytes_of(2, count)) as u64
    }

    /// How many aggregators there are.
    pub fn len(&self) -> u32 {
        self.memory.aggregators
    }

    /// Bytes of an accumulator.
    pub fn lane_bytes(&self) -> usize {
        self.lane_bytes
    }

    /// An aggregator in use.
    #[inline]
    pub fn get(&self, entry: u32) -> &Aggregator {
        &self.entries[entry as usize]
    }

    /// The same, mutable.
    #[inline]
    pub fn get_mut(&mut self, entry: u32) -> &mut Aggregator {
        &mut self.entries[entry as usize]
    }

    /// Takes a free aggregator; `None` if none is free, or if the position's bucket is taken.
    pub fn take(&mut self, aggregator: Aggregator) -> Option<u32> {
        if self.in_use == self.memory.aggregators {
            return None;
        }
        let mut bucket = FREE;
        if self.memory.by_hash {
            bucket = self.bucket_of(&aggregator);
            if std::mem::replace(&mut self.taken[bucket as usize], true) {
                return None;
            }
        }
        let aggregator = Aggregator { bucket, ..aggregator };
        let entry = match self.spare.pop() {
            Some(entry) => {
                self.entries[entry as usize] = aggregator;
                entry
            }
            None => {
                self.entries.push(aggregator);
                self.entries.len() as u32 - 1
            }
        };
        self.in_use += 1;
        self.peak = self.peak.max(self.in_use);
        Some(entry)
    }

    /// ATP's workers choose a bucket by a hash of job and position, and another bucket when the server has told them of
    /// a collision. Here the switch chooses, by the same numbers.
    fn bucket_of(&self, aggregator: &Aggregator) -> u32 {
        let Aggregator { job, position, index, .. } = aggregator;
        let key = u64::from(job.0) << 48 | u64::from(*position) << 32 | u64::from(*index);
        (splitmix64(key) % u64::from(self.memory.aggregators.max(1))) as u32
    }

    /// Frees an aggregator.
    pub fn free(&mut self, entry: u32) {
        self.lists.remove(entry);
        let bucket = self.entries[entry as usize].bucket;
        if bucket != FREE {
            self.taken[bucket as usize] = false;
        }
        self.spare.push(entry);
        self.in_use -= 1;
    }

    /// Renews a lease, since the aggregator is still needed. Leases end at few distinct times, so that a driver rarely
    /// sets its timer.
    #[inline]
    pub fn renew(&mut self, now: Time, entry: u32) {
        if self.lease_ends.0 != now {
            self.lease_ends = (now, lease_end(self.memory.lease, now));
        }
        let due = self.lease_ends.1;
        // Among those whose leases end at one time, any order is right.
        if self.entries[entry as usize].due != due || !self.lists.is_in(KEPT, entry) {
            self.entries[entry as usize].due = due;
            self.lists.push(KEPT, entry);
        }
    }

    /// A rank asks for a sum. A complete sum that has left is lost, or its result is. Ranks ask at about the same time,
    /// and one copy serves all of them: the next one leaves when a rank asks that has asked for a copy before.
    pub fn on_query(&mut self, entry: u32, rank: Rank) {
        let aggregator = self.get_mut(entry);
        if aggregator.is_complete() && (aggregator.asker == NOBODY || aggregator.asker == rank) {
            aggregator.asker = rank;
            self.send(entry);
        }
    }

    /// Notes that an aggregator's contents must be sent.
    pub fn send(&mut self, entry: u32) {
        self.lists.push(LEAVING, entry);
    }

    /// The next aggregator whose contents must be sent.
    pub fn first_leaving(&self) -> Option<u32> {
        self.lists.first(LEAVING)
    }

    /// The first aggregator whose lease is over.
    pub fn expired(&self, now: Time) -> Option<u32> {
        self.lists.first(KEPT).filter(|&entry| self.get(entry).due <= now)
    }

    /// When the first lease ends.
    pub fn next_due(&self) -> Option<Time> {
        self.lists.first(KEPT).map(|entry| self.get(entry).due)
    }

    fn lanes(&mut self, entry: u32, bytes: usize) -> &mut [u8] {
        &mut self.lanes[entry as usize * self.lane_bytes..][..bytes]
    }

    /// Adds a rank's vector.
    #[inline]
    pub fn add(&mut self, entry: u32, codec: &Codec, vector: &[u8], elements: usize) {
        let fresh = !std::mem::replace(&mut self.get_mut(entry).filled, true);
        codec.take(self.lanes(entry, codec.lane_bytes(elements)), fresh, vector);
    }

    /// Adds another switch's sum.
    pub fn add_partial(&mut self, entry: u32, codec: &Codec, vector: &[u8], elements: usize) {
        let fresh = !std::mem::replace(&mut self.get_mut(entry).filled, true);
        codec.take_partial(self.lanes(entry, codec.lane_bytes(elements)), fresh, vector);
    }

    /// Writes the sum.
    pub fn load(&self, entry: u32, codec: &Codec, elements: usize, vector: &mut [u8]) {
        codec.load_partial(&self.lanes[entry as usize * self.lane_bytes..][..codec.lane_bytes(elements)], vector);
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.entries)
            + heap_bytes(&self.lanes)
            + heap_bytes(&self.spare)
            + heap_bytes(&self.taken)
            + self.lists.memory_bytes()
    }

    /// An aggregator without contributions.
    #[expect(clippy::too_many_arguments, reason = "what a block is, taken from its first packet")]
    pub fn fresh(
        job: JobId,
        position: u16,
        elements: usize,
        expected: u16,
        scale: BlockExponent,
        spec: Spec,
        index: u32,
        probe: bool,
    ) -> Aggregator {
        Aggregator {
            job,
            position,
            elements: elements as u16,
            overflow: false,
            probe,
            ecn: false,
            filled: false,
            count: 0,
            expected,
            leaves: false,
            resender: NOBODY,
            last_from: PortId::UNKNOWN,
            scale,
            exponent: BlockExponent::ZERO,
            spec,
            index,
            due: Time::ZERO,
            asker: NOBODY,
            bucket: FREE,
        }
    }
}

/// What a switch counts of one job.
#[derive(Clone, Copy, Default)]
pub struct Counters {
    /// Contributions that were added.
    pub contributions: u64,
    /// Results that passed.
    pub results: u64,
    /// Results that passed and were marked with AECN.
    pub marked: u64,
    /// Contributions that found no room.
    pub overflowed: u64,
    /// Aggregators that left before they were complete.
    pub released: u64,
}

exclude_from_state!(Counters);

impl Counters {
    /// Adds other counts.
    pub fn add(&mut self, other: &Counters) {
        self.contributions += other.contributions;
        self.results += other.results;
        self.marked += other.marked;
        self.overflowed += other.overflowed;
        self.released += other.released;
    }
}
