//! A switch's memory of one block: a hash table that spills, or an array (§7), and the shards that it sends on.
//!
//! Each element has a bit that says that it is there, so that a sum of zero stays an element. A table has no probing:
//! the first element to come keeps the slot `offset mod slots`, later elements with the same offset are combined with
//! it, and elements with any other offset *spill*. Spilled pairs go on in packets of their own as soon as a packet is
//! full, and are kept until they have arrived; the table follows when all children's pairs are in. Shards are numbered
//! in that order, so that each can be made again at any time.

mod scratch;

use tributary_numeric::DType;

pub use self::scratch::Scratch;
use self::scratch::{gather, scatter, with_lane_size};
use super::layout::{Choices, Layout, Pairs, Storage, ascend};
use crate::aggregation::ordered::VectorFormat;
use crate::contract::protocol::ShardShape;
use crate::contract::tensor::Spec;
use crate::contract::values::Values;
use crate::heap::heap_bytes;

/// Sizes of a block that are enough for any collective of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// The table's positions.
    positions: usize,
    /// Bytes of the positions' lanes.
    lane_bytes: usize,
    /// Spilled pairs that are kept.
    spill: usize,
    spill_bytes: usize,
    /// Pairs of the longest packet.
    pairs: usize,
    pair_bytes: usize,
}

impl Sizes {
    /// The sizes for a switch with this storage.
    pub fn new(values: Values, payload_bytes: usize, choices: &Choices, storage: Storage) -> Sizes {
        let mut most = Sizes::default();
        for dtype in DType::ALL {
            let spec = Spec::allreduce(0, dtype, tributary_numeric::ReduceOp::Sum);
            let layout = Layout::new(values, payload_bytes, choices, &spec).expect("every type can be summed");
            let lane = layout.combine.lane_size;
            let (positions, spill) = match storage {
                Storage::Hash => (choices.hash_slots as usize, layout.spill_capacity()),
                Storage::Array => (layout.span as usize, 0),
            };
            most.positions = most.positions.max(positions);
            most.lane_bytes = most.lane_bytes.max(positions * lane);
            most.spill = most.spill.max(spill);
            most.spill_bytes = most.spill_bytes.max(spill * lane);
            let pairs = layout.capacity(VectorFormat::Host).max(layout.capacity(VectorFormat::Partial));
            most.pairs = most.pairs.max(pairs);
            most.pair_bytes = most.pair_bytes.max(pairs * lane);
        }
        most
    }

    /// Bytes on the heap for a block of real elements, with the storage that takes most; and bytes that all blocks of
    /// the switch share.
    pub fn most(shape: &ShardShape<'_>, choices: &Choices) -> (usize, usize) {
        let payload_bytes = 4 * usize::from(shape.elements_per_packet);
        let of = |storage| Sizes::new(Values::Elements, payload_bytes, choices, storage);
        let all = || choices.storages().into_iter().map(|storage| (storage, of(storage)));
        let block = all().map(|(storage, sizes)| sizes.heap_bytes(storage)).max();
        (block.unwrap_or(0), all().map(|(_, sizes)| Scratch::bytes(&sizes)).max().unwrap_or(0))
    }

    fn heap_bytes(&self, storage: Storage) -> usize {
        let offsets = if storage == Storage::Hash { self.positions } else { 0 };
        8 * self.positions.div_ceil(64) + self.lane_bytes + 4 * (offsets + self.spill) + self.spill_bytes
    }
}

/// One block of one switch.
pub struct Block {
    storage: Storage,
    /// The slots of a hash table, or the longest span of an array.
    positions: usize,
    present: Vec<u64>,
    /// Of a hash table: the offset of each slot's element.
    offsets: Vec<u32>,
    lanes: Vec<u8>,
    occupied: u32,
    /// The number and position of the element that was looked for last.
    cursor: (u32, usize),
    spilled: Spilled,
}

/// Pairs that collided, the last `offsets.len()` of them.
struct Spilled {
    offsets: Vec<u32>,
    lanes: Vec<u8>,
    /// How many pairs have spilled, and how many of these have arrived.
    count: u32,
    released: u32,
}

/// The pairs that a packet is made of, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Spilled pairs: the first, and how many.
    spilled: (u32, u32),
    /// Elements of the table: the first, and how many.
    table: (u32, u32),
    /// How many shards there are, if this shard is the last; else 0.
    pub count: u32,
}

impl Contents {
    /// How many pairs the packet holds.
    pub fn pairs(&self) -> usize {
        (self.spilled.1 + self.table.1) as usize
    }
}

impl Block {
    /// An empty block.
    pub fn new(storage: Storage, sizes: &Sizes) -> Block {
        Block {
            storage,
            positions: sizes.positions,
            present: vec![0; sizes.positions.div_ceil(64)],
            offsets: vec![0; if storage == Storage::Hash { sizes.positions } else { 0 }],
            lanes: vec![0; sizes.lane_bytes],
            occupied: 0,
            cursor: (0, 0),
            spilled: Spilled {
                offsets: vec![0; sizes.spill],
                lanes: vec![0; sizes.spill_bytes],
                count: 0,
                released: 0,
            },
        }
    }

    /// Empties the block.
    pub fn clear(&mut self) {
        self.present.fill(0);
        (self.occupied, self.cursor) = (0, (0, 0));
        (self.spilled.count, self.spilled.released) = (0, 0);
    }

    /// True if this many more pairs have room even if all of them collide.
    pub fn has_capacity(&self, layout: &Layout, pairs: usize) -> bool {
        let kept = (self.spilled.count - self.spilled.released) as usize;
        self.storage == Storage::Array || kept + pairs <= layout.spill_capacity()
    }

    /// True if half of the room for spilled packets is used: the receiver must say soon which have arrived.
    pub fn fills(&self, layout: &Layout) -> bool {
        let kept = (self.spilled.count - self.spilled.released) as usize;
        kept >= layout.kept_spill_capacity() / 2
    }

    /// Adds a packet's pairs, for which there is room; returns how many spilled.
    pub fn add(&mut self, layout: &Layout, pairs: &Pairs<'_>, format: VectorFormat, scratch: &mut Scratch) -> usize {
        scratch.read(layout, pairs, format);
        if self.storage == Storage::Array && ascend(&scratch.offsets) {
            self.add_distinct(layout, scratch);
            return 0;
        }
        let size = layout.combine.lane_size;
        let each = scratch.offsets.iter().zip(scratch.lanes.chunks_exact(size));
        each.filter(|&(&offset, lane)| !self.add_one(layout, offset, lane)).count()
    }

    /// Adds pairs to an array; no two pairs are for the same position.
    fn add_distinct(&mut self, layout: &Layout, scratch: &mut Scratch) {
        let (size, Scratch { offsets, lanes, current, .. }) = (layout.combine.lane_size, scratch);
        current.clear();
        with_lane_size!(size, gather(&self.lanes, offsets.iter().map(|&offset| offset as usize), current));
        (layout.combine.merge)(current, lanes);
        let table = (self.lanes.as_mut_slice(), self.present.as_mut_slice());
        self.occupied += with_lane_size!(size, scatter(table, offsets, current, lanes));
    }

    /// Adds one element; false if it spilled.
    fn add_one(&mut self, layout: &Layout, offset: u32, lane: &[u8]) -> bool {
        let position = match self.storage {
            Storage::Hash => offset as usize % self.positions,
            Storage::Array => offset as usize,
        };
        let (word, bit) = (&mut self.present[position / 64], 1 << (position % 64));
        let current = &mut self.lanes[position * lane.len()..][..lane.len()];
        if *word & bit == 0 {
            *word |= bit;
            self.occupied += 1;
            current.copy_from_slice(lane);
            if self.storage == Storage::Hash {
                self.offsets[position] = offset;
            }
            return true;
        }
        if self.storage == Storage::Hash && self.offsets[position] != offset {
            self.spilled.push(layout, offset, lane);
            return false;
        }
        (layout.combine.merge)(current, lane);
        true
    }

    /// How many elements the table holds.
    pub fn occupied(&self) -> u32 {
        self.occupied
    }

    /// How many positions are searched for the sum.
    pub fn positions(&self, layout: &Layout) -> u32 {
        match self.storage {
            Storage::Hash => self.positions as u32,
            Storage::Array => layout.span,
        }
    }

    /// True if an index may be there more than once.
    pub fn has_spilled(&self) -> bool {
        self.spilled.count > 0
    }

    /// How many shards may go now: full packets of spilled pairs and, when all children's pairs are in, the rest.
    pub fn available(&self, layout: &Layout, is_closed: bool, format: VectorFormat) -> u32 {
        let full = self.full_spills(layout);
        full + if is_closed { self.last_shards(layout, format) } else { 0 }
    }

    fn full_spills(&self, layout: &Layout) -> u32 {
        self.spilled.count / layout.spill() as u32
    }

    /// How many shards follow the full packets of spilled pairs: at least one, which says how many shards there are.
    fn last_shards(&self, layout: &Layout, format: VectorFormat) -> u32 {
        let rest = self.spilled.count % layout.spill() as u32;
        (rest + self.occupied).div_ceil(layout.capacity(format) as u32).max(1)
    }

    /// Pairs of the last shard, if it is not full.
    pub fn unfilled(&self, layout: &Layout, format: VectorFormat) -> u32 {
        (self.spilled.count % layout.spill() as u32 + self.occupied) % layout.capacity(format) as u32
    }

    /// All shards below `shards` have arrived: their spilled pairs are not kept any longer.
    pub fn release(&mut self, layout: &Layout, shards: u32) {
        let released = shards.min(self.full_spills(layout)) * layout.spill() as u32;
        self.spilled.released = self.spilled.released.max(released);
    }

    /// The contents of a shard that may go and has not arrived.
    pub fn contents(&self, layout: &Layout, shard: u32, is_closed: bool, format: VectorFormat) -> Contents {
        let (spill, full) = (layout.spill() as u32, self.full_spills(layout));
        let Some(number) = shard.checked_sub(full) else {
            return Contents { spilled: (shard * spill, spill), table: (0, 0), count: 0 };
        };
        debug_assert!(is_closed, "the table goes when all are in");
        let (capacity, rest) = (layout.capacity(format) as u32, self.spilled.count % spill);
        let (start, end) = (number * capacity, ((number + 1) * capacity).min(rest + self.occupied));
        let of_spilled = (start.min(rest), end.min(rest));
        let of_table = (start.max(rest) - rest, end.max(rest) - rest);
        let is_last = number + 1 == self.last_shards(layout, format);
        Contents {
            spilled: (full * spill + of_spilled.0, of_spilled.1 - of_spilled.0),
            table: (of_table.0, of_table.1 - of_table.0),
            count: if is_last { shard + 1 } else { 0 },
        }
    }

    /// Writes the pairs behind a header.
    pub fn write(
        &mut self,
        layout: &Layout,
        contents: &Contents,
        format: VectorFormat,
        scratch: &mut Scratch,
        body: &mut [u8],
    ) {
        let size = layout.combine.lane_size;
        let Scratch { offsets, positions, lanes, .. } = scratch;
        offsets.clear();
        lanes.clear();
        let spilled = contents.spilled.0..contents.spilled.0 + contents.spilled.1;
        for kept in spilled.map(|number| self.spilled.at(layout, number)) {
            offsets.push(self.spilled.offsets[kept]);
            lanes.extend_from_slice(&self.spilled.lanes[kept * size..][..size]);
        }
        self.positions_of(contents.table, positions);
        match self.storage {
            Storage::Hash => offsets.extend(positions.iter().map(|&position| self.offsets[position as usize])),
            Storage::Array => offsets.extend_from_slice(positions),
        }
        with_lane_size!(size, gather(&self.lanes, positions.iter().map(|&position| position as usize), lanes));
        scratch.write(layout, format, body);
    }

    /// Finds the positions of `count` elements, from the element with number `first` on.
    fn positions_of(&mut self, (first, count): (u32, u32), positions: &mut Vec<u32>) {
        positions.clear();
        if count == 0 {
            return;
        }
        let start = self.position_of(first);
        let (mut word, mut bits) = (start / 64, self.present[start / 64] & (u64::MAX << (start % 64)));
        while positions.len() < count as usize {
            while bits != 0 && positions.len() < count as usize {
                positions.push(word as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
            if bits == 0 && positions.len() < count as usize {
                word += 1;
                bits = self.present[word];
            }
        }
        self.cursor = (first + count - 1, positions[count as usize - 1] as usize);
    }

    /// Divides averages. All contributions of all ranks are in, and none spilled.
    pub fn finish(&mut self, layout: &Layout, world_size: u16) {
        let used = self.positions(layout) as usize;
        (layout.combine.finish)(&mut self.lanes[..used * layout.combine.lane_size], world_size);
    }

    /// The position of the element with this number, among the elements that are there.
    fn position_of(&self, number: u32) -> usize {
        let (mut left, mut word) = match self.cursor {
            // Counts from the beginning of the cursor's word.
            (known, position) if known <= number => {
                let before = self.present[position / 64] & ((1 << (position % 64)) - 1);
                (number + before.count_ones() - known, position / 64)
            }
            _ => (number, 0),
        };
        while left >= self.present[word].count_ones() {
            left -= self.present[word].count_ones();
            word += 1;
        }
        let mut bits = self.present[word];
        (0..left).for_each(|_| bits &= bits - 1);
        word * 64 + bits.trailing_zeros() as usize
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        let Spilled { offsets, lanes, .. } = &self.spilled;
        heap_bytes(&self.present)
            + heap_bytes(&self.offsets)
            + heap_bytes(&self.lanes)
            + heap_bytes(offsets)
            + heap_bytes(lanes)
    }
}

impl Spilled {
    /// Where the pair with this number is kept.
    fn at(&self, layout: &Layout, number: u32) -> usize {
        number as usize % layout.spill_capacity()
    }

    fn push(&mut self, layout: &Layout, offset: u32, lane: &[u8]) {
        let at = self.at(layout, self.count);
        self.offsets[at] = offset;
        self.lanes[at * lane.len()..][..lane.len()].copy_from_slice(lane);
        self.count += 1;
    }
}
