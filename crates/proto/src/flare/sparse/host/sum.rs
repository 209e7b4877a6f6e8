//! The sum of one block as it comes to a host, shard by shard.
//!
//! If the root could not combine all values of an index, hosts combine them in the order of the shards' numbers, so
//! that all hosts get the same bits.

use std::ops::Range;

use crate::contract::drop_reason::DropReason;
use crate::contract::sparse::SparseTensor;
use crate::flare::sparse::layout::{Layout, ascend};
use crate::flare::sparse::shards::Received;
use crate::flare::sparse::wire::Header;
use crate::parts::form::Form;

/// Memory that the sums of all slots share, so that a shard and a block allocate nothing: it is taken from here, and comes
/// back. What came back last goes first, as it is still in the processor's cache.
#[derive(Default)]
pub struct Memory {
    bodies: Vec<Vec<u8>>,
    indices: Vec<u32>,
    values: Vec<u8>,
}

impl Memory {
    /// A copy of a shard's body.
    fn copy(&mut self, body: &[u8]) -> Vec<u8> {
        let mut copy = self.bodies.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(body);
        copy
    }
}

/// The shards of a block's sum that have come.
#[derive(Default)]
pub struct Sum {
    /// Which shards have come.
    pub received: Received,
    /// The shards' numbers, ascending, and their bodies, as they came.
    shards: Vec<(u32, Vec<u8>)>,
    is_finished: bool,
}

impl Sum {
    /// Empties the sum for the slot's next block.
    pub fn clear(&mut self, memory: &mut Memory) {
        (self.received, self.is_finished) = (Received::default(), false);
        memory.bodies.extend(self.shards.drain(..).map(|(_, body)| body));
    }

    /// Takes in the body of a shard; the body was parsed before.
    pub fn take(&mut self, header: &Header, body: &[u8], memory: &mut Memory) -> Result<(), DropReason> {
        self.received.check(header.shard, header.count)?;
        let is_first = self.shards.is_empty();
        if !is_first && header.is_finished != self.is_finished {
            return Err(DropReason::BadField);
        }
        self.is_finished = header.is_finished;
        self.received.take(header.shard, header.count);
        // Shards come in order, but for losses.
        let at = self.shards.partition_point(|(shard, _)| *shard < header.shard);
        self.shards.insert(at, (header.shard, memory.copy(body)));
        Ok(())
    }

    /// Writes the complete sum as the result of a block of indices.
    pub fn write(
        &self,
        layout: &Layout,
        world: u16,
        block: Range<u32>,
        memory: &mut Memory,
        tensor: &mut dyn SparseTensor,
    ) {
        let form = if self.is_finished { Form::Host } else { Form::Partial };
        let shards = || self.shards.iter().map(|(_, body)| layout.pairs(body, form));
        if self.is_finished {
            // An array at the root gives elements in order, shard after shard, so there is nothing to sort or combine.
            let Memory { indices, values, .. } = memory;
            indices.clear();
            shards().for_each(|pairs| pairs.append_offsets(block.start, indices));
            if ascend(indices) {
                values.clear();
                shards().for_each(|pairs| values.extend_from_slice(pairs.values()));
                return tensor.write_block(block, indices, values);
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
            values.resize(at + layout.value_len(Form::Host), 0);
            if self.is_finished {
                values[at..].copy_from_slice(same[0].1);
                continue;
            }
            (layout.combine.store_partial)(&mut lane, same[0].1);
            same[1..].iter().for_each(|(_, value)| (layout.combine.add_partial)(&mut lane, value));
            (layout.combine.finish)(&mut lane, world);
            (layout.combine.load)(&lane, &mut values[at..]);
        }
        tensor.write_block(block, &indices, &values);
    }
}
