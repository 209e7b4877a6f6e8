//! What a switch keeps of one block: a hash table that spills, or an array (§7), and the shards that go on from it.
//!
//! An element has a bit that says that it is there, so that a sum of zero stays an element. A table has no probing: the first comer
//! keeps the slot `offset mod slots`, the same offset is combined with it, and any other *spills*. Spilled pairs go on in packets of
//! their own as soon as one is full, and are kept until they have arrived; the table follows when all children are in. Shards are
//! numbered in that order, so that each can be made again at any time.

use tributary_numeric::DType;

use super::layout::{Choices, Layout, Storage};
use crate::contract::protocol::JobShape;
use crate::contract::tensor::Spec;
use crate::contract::values::Values;
use crate::parts::form::Form;
use crate::parts::memory::heap_bytes;

/// Memory that any collective of a job finds enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Places of the table.
    places: usize,
    /// Bytes of their lanes.
    lane_bytes: usize,
    /// Spilled pairs.
    spill: usize,
    spill_bytes: usize,
}

impl Sizes {
    /// What a switch needs that keeps blocks so.
    pub fn new(values: Values, payload_bytes: usize, choices: &Choices, storage: Storage) -> Sizes {
        let mut most = Sizes::default();
        for dtype in DType::ALL {
            let spec = Spec::allreduce(0, dtype, tributary_numeric::ReduceOp::Sum);
            let layout = Layout::new(values, payload_bytes, choices, &spec).expect("every type can be summed");
            let lane = layout.combine.lane_size;
            let (places, spill) = match storage {
                Storage::Hash => (choices.hash_slots as usize, layout.spill_room()),
                Storage::Array => (layout.span as usize, 0),
            };
            most.places = most.places.max(places);
            most.lane_bytes = most.lane_bytes.max(places * lane);
            most.spill = most.spill.max(spill);
            most.spill_bytes = most.spill_bytes.max(spill * lane);
        }
        most
    }

    /// Bytes on the heap of a block of real elements, in whatever a switch of the job keeps it.
    pub fn most(shape: &JobShape<'_>, choices: &Choices) -> usize {
        let payload_bytes = 4 * usize::from(shape.elements_per_packet);
        let of = |storage| Sizes::new(Values::Elements, payload_bytes, choices, storage).heap_bytes(storage);
        choices.storages().into_iter().map(of).max().unwrap_or(0)
    }

    fn heap_bytes(&self, storage: Storage) -> usize {
        let offsets = if storage == Storage::Hash { self.places } else { 0 };
        8 * self.places.div_ceil(64) + self.lane_bytes + 4 * (offsets + self.spill) + self.spill_bytes
    }
}

/// One block of one switch.
pub struct Block {
    storage: Storage,
    /// Slots of the table, or the most that a span may have.
    places: usize,
    present: Vec<u64>,
    /// Of a hash table: whose element is in each slot.
    offsets: Vec<u32>,
    lanes: Vec<u8>,
    occupied: u32,
    /// Where the element of some number is: the last that was looked for.
    cursor: (u32, usize),
    spilled: Spilled,
}

/// Pairs that collided, the last `offsets.len()` of them.
struct Spilled {
    offsets: Vec<u32>,
    lanes: Vec<u8>,
    /// How many there were, and how many of them have arrived.
    count: u32,
    released: u32,
}

/// What a packet is made from: pairs of the block, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Pairs that spilled, from this one on.
    spilled: (u32, u32),
    /// Elements of the table, from this one on.
    table: (u32, u32),
    /// How many shards there are, if this is the last.
    pub count: u32,
}

impl Contents {
    /// How many pairs.
    pub fn pairs(&self) -> usize {
        (self.spilled.1 + self.table.1) as usize
    }
}

impl Block {
    /// Nothing is in it.
    pub fn new(storage: Storage, sizes: &Sizes) -> Block {
        Block {
            storage,
            places: sizes.places,
            present: vec![0; sizes.places.div_ceil(64)],
            offsets: vec![0; if storage == Storage::Hash { sizes.places } else { 0 }],
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

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.present.fill(0);
        (self.occupied, self.cursor) = (0, (0, 0));
        (self.spilled.count, self.spilled.released) = (0, 0);
    }

    /// Whether so many more pairs have room, wherever they collide.
    pub fn has_room(&self, layout: &Layout, pairs: usize) -> bool {
        let kept = (self.spilled.count - self.spilled.released) as usize;
        self.storage == Storage::Array || kept + pairs <= layout.spill_room()
    }

    /// Half of the spilled packets that may be kept are: it is time to hear which have arrived.
    pub fn fills(&self, layout: &Layout) -> bool {
        let kept = (self.spilled.count - self.spilled.released) as usize;
        kept >= layout.spill_room_kept() / 2
    }

    /// Takes in an element, for which there is room; false if it spilled.
    pub fn add(&mut self, layout: &Layout, offset: u32, value: &[u8], form: Form) -> bool {
        let place = match self.storage {
            Storage::Hash => offset as usize % self.places,
            Storage::Array => offset as usize,
        };
        let size = layout.combine.lane_size;
        let (word, bit) = (&mut self.present[place / 64], 1 << (place % 64));
        let lanes = &mut self.lanes[place * size..][..size];
        let is_there = *word & bit != 0;
        if is_there && self.storage == Storage::Hash && self.offsets[place] != offset {
            self.spilled.push(layout, offset, value, form);
            return false;
        }
        let (store, add) = match form {
            Form::Host => (layout.combine.store, layout.combine.add),
            Form::Partial => (layout.combine.store_partial, layout.combine.add_partial),
        };
        if is_there {
            add(lanes, value);
            return true;
        }
        *word |= bit;
        self.occupied += 1;
        store(lanes, value);
        if self.storage == Storage::Hash {
            self.offsets[place] = offset;
        }
        true
    }

    /// Elements of the table.
    pub fn occupied(&self) -> u32 {
        self.occupied
    }

    /// Some index may be there more than once.
    pub fn has_spilled(&self) -> bool {
        self.spilled.count > 0
    }

    /// Shards that may go now: those that spilled, and when all children are in the rest.
    pub fn available(&self, layout: &Layout, is_closed: bool, form: Form) -> u32 {
        let full = self.full_spills(layout);
        full + if is_closed { self.last_shards(layout, form) } else { 0 }
    }

    fn full_spills(&self, layout: &Layout) -> u32 {
        self.spilled.count / layout.spill() as u32
    }

    /// Shards behind those that spilled: at least one, which says how many there are.
    fn last_shards(&self, layout: &Layout, form: Form) -> u32 {
        let rest = self.spilled.count % layout.spill() as u32;
        (rest + self.occupied).div_ceil(layout.capacity(form) as u32).max(1)
    }

    /// All shards below have arrived: what spilled into them may go.
    pub fn release(&mut self, layout: &Layout, shards: u32) {
        let released = shards.min(self.full_spills(layout)) * layout.spill() as u32;
        self.spilled.released = self.spilled.released.max(released);
    }

    /// What is in an available shard that has not arrived.
    pub fn contents(&self, layout: &Layout, shard: u32, is_closed: bool, form: Form) -> Contents {
        let (spill, full) = (layout.spill() as u32, self.full_spills(layout));
        let Some(number) = shard.checked_sub(full) else {
            return Contents { spilled: (shard * spill, spill), table: (0, 0), count: 0 };
        };
        debug_assert!(is_closed, "the table goes when all are in");
        let (capacity, rest) = (layout.capacity(form) as u32, self.spilled.count % spill);
        let (start, end) = (number * capacity, ((number + 1) * capacity).min(rest + self.occupied));
        let of_spilled = (start.min(rest), end.min(rest));
        let of_table = (start.max(rest) - rest, end.max(rest) - rest);
        let is_last = number + 1 == self.last_shards(layout, form);
        Contents {
            spilled: (full * spill + of_spilled.0, of_spilled.1 - of_spilled.0),
            table: (of_table.0, of_table.1 - of_table.0),
            count: if is_last { shard + 1 } else { 0 },
        }
    }

    /// Writes pairs behind a header.
    pub fn write(&mut self, layout: &Layout, contents: &Contents, form: Form, body: &mut [u8]) {
        let (size, pairs, value_len) = (layout.combine.lane_size, contents.pairs(), layout.value_len(form));
        let load = match form {
            Form::Host => layout.combine.load,
            Form::Partial => layout.combine.load_partial,
        };
        let mut put = |at: usize, offset: u32, lanes: &[u8]| {
            layout.put_offset(body, at, offset);
            load(lanes, &mut layout.values(body, pairs, form)[at * value_len..][..value_len]);
        };
        for at in 0..contents.spilled.1 {
            let kept = self.spilled.at(layout, contents.spilled.0 + at);
            put(at as usize, self.spilled.offsets[kept], &self.spilled.lanes[kept * size..][..size]);
        }
        let mut place = if contents.table.1 > 0 { self.place_of(contents.table.0) } else { 0 };
        for at in 0..contents.table.1 {
            if at > 0 {
                place = self.next_place(place + 1);
            }
            let offset = self.offsets.get(place).copied().unwrap_or(place as u32);
            put((contents.spilled.1 + at) as usize, offset, &self.lanes[place * size..][..size]);
        }
        if contents.table.1 > 0 {
            self.cursor = (contents.table.0 + contents.table.1 - 1, place);
        }
    }

    /// Divides averages: all contributions of all ranks are in, and none spilled.
    pub fn finish(&mut self, layout: &Layout, world: u16) {
        let used = match self.storage {
            Storage::Hash => self.places,
            Storage::Array => layout.span as usize,
        };
        (layout.combine.finish)(&mut self.lanes[..used * layout.combine.lane_size], world);
    }

    /// The place of an element by its number among those that are there.
    fn place_of(&self, number: u32) -> usize {
        let (mut left, mut word) = match self.cursor {
            // From the beginning of the cursor's word.
            (known, place) if known <= number => {
                let before = self.present[place / 64] & ((1 << (place % 64)) - 1);
                (number + before.count_ones() - known, place / 64)
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

    /// The first place from here on that has an element.
    fn next_place(&self, from: usize) -> usize {
        let (mut word, mut bits) = (from / 64, self.present[from / 64] & (u64::MAX << (from % 64)));
        while bits == 0 {
            word += 1;
            bits = self.present[word];
        }
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
    /// Where a pair is kept, by its number.
    fn at(&self, layout: &Layout, number: u32) -> usize {
        number as usize % layout.spill_room()
    }

    fn push(&mut self, layout: &Layout, offset: u32, value: &[u8], form: Form) {
        let (at, size) = (self.at(layout, self.count), layout.combine.lane_size);
        self.offsets[at] = offset;
        let store = match form {
            Form::Host => layout.combine.store,
            Form::Partial => layout.combine.store_partial,
        };
        store(&mut self.lanes[at * size..][..size], value);
        self.count += 1;
    }
}
