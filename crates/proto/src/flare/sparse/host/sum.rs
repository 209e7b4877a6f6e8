//! The sum of one block as it comes to a host, shard by shard.
//!
//! If the root could not combine all values of an index, hosts combine them in the order of the shards' numbers, so
//! that all hosts get the same bits.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::aggregation::vector_format::VectorFormat;
use crate::contract::drop_reason::DropReason;
use crate::contract::sparse::SparseTensor;
use crate::flare::sparse::layout::{Layout, ascend};
use crate::flare::sparse::shards::Received;
use crate::flare::sparse::wire::Header;

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
