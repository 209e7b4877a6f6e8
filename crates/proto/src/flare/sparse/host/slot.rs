//! One slot of a host: the shards of its block that were sent, the shards of the sum that have come, and the questions
//! and answers that are due about them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::aggregation::ordered::VectorFormat;
use crate::contract::drop_reason::DropReason;
use crate::contract::tensor::SparseTensor;
use crate::flare::sparse::layout::{Layout, ascend};
use crate::flare::sparse::shards::{Lacking, Received, Sent};
use crate::flare::sparse::wire::Header;

/// After this many shards each, a host asks the switch which shards have come, so that the window moves before it is
/// used up.
const QUERY_EVERY: u32 = 32;

/// What a host sends of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// A shard of the block.
    Shard {
        /// The shard's number.
        shard: u32,
        /// The switch is asked which shards have come.
        asks: bool,
        /// The shard was sent before.
        again: bool,
    },
    /// The first shard of the sum that is missing.
    Have,
    /// The shards of the sum that are missing.
    Want,
}

/// One slot.
pub struct Slot {
    /// The block of the stream that the slot works on, or waits for.
    pub block: u64,
    /// How many blocks the slot had before.
    pub phase: u32,
    /// True if the slot works on its block.
    pub is_active: bool,
    /// The phase began when the one before it ended.
    pub in_step: bool,
    /// True if a timer runs for the slot.
    pub is_armed: bool,
    /// The sum, as far as it has come.
    pub sum: Sum,
    /// The block's own elements, by their positions in the tensor.
    positions: Range<usize>,
    /// How many shards the block has, and how many pairs a full shard has.
    shards: u32,
    capacity: usize,
    sent: Sent,
    again: Lacking,
    says_have: bool,
    says_want: bool,
}

impl Slot {
    /// A slot that waits for its first block.
    pub fn new(idx: u16) -> Slot {
        Slot {
            block: idx.into(),
            phase: 0,
            is_active: false,
            in_step: false,
            is_armed: false,
            sum: Sum::default(),
            positions: 0..0,
            shards: 0,
            capacity: 1,
            sent: Sent::default(),
            again: Lacking::default(),
            says_have: false,
            says_want: false,
        }
    }

    /// Begins the slot's block, whose elements have these positions.
    pub fn begin(&mut self, positions: Range<usize>, layout: &Layout, in_step: bool) {
        self.capacity = layout.capacity(VectorFormat::Host);
        // A block without elements is an empty shard, so that the switch counts its rank too.
        self.shards = positions.len().div_ceil(self.capacity).max(1) as u32;
        (self.positions, self.sent, self.again) = (positions, self.sent.restarted(), Lacking::default());
        (self.is_active, self.in_step, self.is_armed) = (true, in_step, false);
        (self.says_have, self.says_want) = (false, false);
        self.sum = Sum::default();
    }

    /// Ends the block; the slot waits for the next one.
    pub fn end(&mut self, stride: u64) {
        self.block += stride;
        self.phase = self.phase.wrapping_add(1);
        self.is_active = false;
    }

    /// The positions of a shard's elements, and the number of shards if it is the last.
    pub fn shard(&self, shard: u32) -> (Range<usize>, u32) {
        let start = self.positions.start + shard as usize * self.capacity;
        let end = (start + self.capacity).min(self.positions.end);
        (start..end, if shard + 1 == self.shards { self.shards } else { 0 })
    }

    /// The next thing to send, if there is anything.
    pub fn next(&mut self) -> Option<Say> {
        if !self.is_active {
            return None;
        }
        if let Some(shard) = self.again.pop() {
            return Some(Say::Shard { shard, asks: self.again.is_empty(), again: true });
        }
        if self.sent.may_go_on(self.shards) {
            let is_narrow = self.sent.is_narrow();
            let (shard, again) = self.sent.advance();
            let asks = (shard + 1).is_multiple_of(QUERY_EVERY) || is_narrow;
            return Some(Say::Shard { shard, asks, again });
        }
        if std::mem::take(&mut self.says_want) {
            self.says_have = false;
            return Some(Say::Want);
        }
        std::mem::take(&mut self.says_have).then_some(Say::Have)
    }

    /// Nothing was heard for too long: the last shard that was sent goes again and asks which shards have come; if all
    /// have come, the slot asks for the sum.
    pub fn time_out(&mut self) {
        if !self.is_active {
            return;
        }
        match self.sent.released == self.shards {
            true => self.says_want = true,
            false => self.again = self.again.and(self.sent.last()),
        }
    }

    /// The switch says which shards have come. If `asks` is set, it had no room for any of the others and has room
    /// again. If it has all shards of all children, the sum has gone and may be lost: the slot asks for it. (Shards
    /// that were sent again asked because the sum is late.)
    pub fn taken(&mut self, header: &Header, bits: u64) {
        if !self.sent.has_sent(header.shard) {
            return;
        }
        let is_news = self.sent.release(header.shard);
        if header.asks {
            self.sent.shrink();
            self.again = Lacking::default();
        } else {
            if is_news {
                self.sent.grow();
            }
            let lacking = self.sent.overtaken(header.shard, bits);
            self.again = self.again.and(lacking).from(self.sent.released);
        }
        self.says_want |= is_news && header.is_finished && self.sent.released == self.shards;
    }

    /// True if the slot has something to send.
    pub fn has_more(&self) -> bool {
        !self.again.is_empty() || self.sent.may_go_on(self.shards) || self.says_want || self.says_have
    }

    /// The switch must hear how much of the sum is there.
    pub fn owe_have(&mut self) {
        self.says_have = true;
    }
}

// The sum of one block as it comes to a host, shard by shard.
//
// If the root could not combine all values of an index, hosts combine them in the order of the shards' numbers, so
// that all hosts get the same bits.

/// The shards of a block's sum that have come.
#[derive(Default)]
pub struct Sum {
    /// Which shards have come.
    pub received: Received,
    /// The shards' bodies, as they came.
    shards: BTreeMap<u32, Vec<u8>>,
    is_finished: bool,
}

impl Sum {
    /// Takes in the body of a shard; the body was parsed before.
    pub fn take(&mut self, header: &Header, body: &[u8]) -> Result<(), DropReason> {
        self.received.check(header.shard, header.count)?;
        let is_first = self.shards.is_empty();
        if !is_first && header.is_finished != self.is_finished {
            return Err(DropReason::BadField);
        }
        self.is_finished = header.is_finished;
        self.received.take(header.shard, header.count);
        self.shards.insert(header.shard, body.to_vec());
        Ok(())
    }

    /// Writes the complete sum as the result of a block of indices, and makes room for the next sum.
    pub fn write(&mut self, layout: &Layout, world_size: u16, block: Range<u32>, tensor: &mut dyn SparseTensor) {
        let format = if self.is_finished { VectorFormat::Host } else { VectorFormat::Partial };
        let sum = std::mem::take(self);
        let shards = || sum.shards.values().map(|body| layout.pairs(body, format));
        if sum.is_finished {
            // An array at the root gives elements in order, shard after shard, so there is nothing to sort or combine.
            let mut indices = Vec::with_capacity(shards().map(|pairs| pairs.len()).sum());
            shards().for_each(|pairs| pairs.append_offsets(block.start, &mut indices));
            if ascend(&indices) {
                let values: Vec<&[u8]> = shards().map(|pairs| pairs.values()).collect();
                return tensor.write_block(block, &indices, &values.concat());
            }
        }
        let mut pairs: Vec<(u32, &[u8])> = shards().flat_map(|pairs| pairs.iter()).collect();
        // The sort is stable: of values of one index, the earlier shard's comes first.
        pairs.sort_by_key(|&(offset, _)| offset);
        let (mut indices, mut values) = (Vec::with_capacity(pairs.len()), Vec::new());
        let mut lane = vec![0; layout.combine.lane_size];
        for same in pairs.chunk_by(|(a, _), (b, _)| a == b) {
            indices.push(block.start + same[0].0);
            let at = values.len();
            values.resize(at + layout.value_len(VectorFormat::Host), 0);
            if sum.is_finished {
                values[at..].copy_from_slice(same[0].1);
                continue;
            }
            (layout.combine.store_partial)(&mut lane, same[0].1);
            same[1..].iter().for_each(|(_, value)| (layout.combine.add_partial)(&mut lane, value));
            (layout.combine.finish)(&mut lane, world_size);
            (layout.combine.load)(&lane, &mut values[at..]);
        }
        tensor.write_block(block, &indices, &values);
    }
}
