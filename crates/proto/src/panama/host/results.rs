//! Results. A result acknowledges this rank's contribution. Where sums need not wait for this rank (§7), results also
//! come for blocks that the rank has not submitted.

use std::ops::Range;

use super::tree::Arrival;
use super::{PanamaHost, lengths, read};
use crate::aggregation::life::Op;
use crate::congestion::ResultAck;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::ids::Rank;
use crate::contract::packet::{Ecn, Packet};
use crate::contract::tensor::Spec;
use crate::contract::time::Time;
use crate::panama::partial::may_lack_ranks;
use crate::panama::protocol::Quorum;
use crate::panama::wire::{HEADER_LEN, Header, slot_of};

impl PanamaHost {
    /// Takes in a result.
    pub(super) fn result(
        &mut self,
        now: Time,
        header: &Header,
        vid: u64,
        packet: Packet<'_>,
    ) -> Result<(), DropReason> {
        let index = header.tree().index();
        match self.trees[index].arrival(vid, self.submitted(index)) {
            Arrival::Ahead => return Err(DropReason::Ahead),
            Arrival::Double => return Err(DropReason::Duplicate),
            Arrival::New => match self.choices.quorum {
                Some(quorum) => self.take(quorum, index, header, vid, packet)?,
                None => self.write(index, header, vid, packet)?,
            },
            Arrival::Again => {}
        }
        let tree = &mut self.trees[index];
        tree.on_result(now, vid);
        let is_marked = packet.ecn == Ecn::CongestionExperienced;
        tree.window.on_result(ResultAck { vid, is_marked, capacity: header.wnd_cap });
        self.stirred_at = Some(now);
        self.complete_collectives(now);
        Ok(())
    }

    /// Writes a result to the output. A rewind may need the contribution that it overwrites, so that is kept.
    fn write(&mut self, index: usize, header: &Header, vid: u64, packet: Packet<'_>) -> Result<(), DropReason> {
        let (world_size, rank, block) = (self.config.job.world_size, self.config.rank, self.block(index, vid));
        let (len, wire_len) = self.fits(block, &header.spec, packet)?;
        if header.contributors != world_size {
            return Err(DropReason::BadField);
        }
        let op = self.stream.op_of_mut(block).expect("what was sent and has no result has a collective");
        let tree = &mut self.trees[index];
        if !op.tensor.leaves_input() {
            tree.kept.keep(vid, op.spec, (len, wire_len), 1, |bytes| read(op, block, &self.config, bytes));
        }
        if len > 0 && op.spec.primitive.receives(rank) {
            op.write(block, None, world_size, &packet.bytes[HEADER_LEN..]);
        }
        op.remaining -= 1;
        tree.on_written(vid);
        self.stats.blocks_in_network += 1;
        Ok(())
    }

    /// A complete collective goes back to its caller. A rewind may need the latest contributions, which so far were in
    /// the input that its results have left as it was.
    pub(super) fn keep_latest(&mut self, op: &Op) {
        for index in 0..self.trees.len() {
            let end = self.vid_from(index, op.first_block + op.blocks);
            let tree = &self.trees[index];
            let start = self.vid_from(index, op.first_block).max(tree.top().saturating_sub(tree.kept.capacity()));
            for vid in start..end {
                let block = self.block(index, vid);
                let kept = &mut self.trees[index].kept;
                kept.keep(vid, op.spec, lengths(op, block), 1, |bytes| read(op, block, &self.config, bytes));
            }
        }
    }

    /// The lengths of a block's vector in memory and on the wire, if the packet's result has them.
    fn fits(&self, block: u64, spec: &Spec, packet: Packet<'_>) -> Result<(usize, usize), DropReason> {
        let op = self.stream.op_of(block).expect("what was sent and has no result has a collective");
        if *spec != op.spec {
            return Err(DropReason::BadField);
        }
        let (len, wire_len) = lengths(op, block);
        let fits = packet.wire_len == HEADER_LEN + wire_len && packet.bytes.len() == HEADER_LEN + len;
        if fits { Ok((len, wire_len)) } else { Err(DropReason::BadLength) }
    }

    /// Keeps a result that may lack ranks, for ranks that may not get it, and writes it if its collective was
    /// submitted.
    fn take(
        &mut self,
        quorum: Quorum,
        index: usize,
        header: &Header,
        vid: u64,
        packet: Packet<'_>,
    ) -> Result<(), DropReason> {
        let (world_size, block) = (self.config.job.world_size, self.block(index, vid));
        let least = if may_lack_ranks(&header.spec) { quorum.least(world_size) } else { world_size };
        if !(least..=world_size).contains(&header.contributors) {
            return Err(DropReason::BadField);
        }
        if block < self.blocks {
            self.fits(block, &header.spec, packet)?;
        } else if packet.bytes.len() > HEADER_LEN + self.trees[index].kept.longest() {
            return Err(DropReason::BadLength);
        }
        let (vector, tree) = (&packet.bytes[HEADER_LEN..], &mut self.trees[index]);
        let lengths = (vector.len(), packet.wire_len - HEADER_LEN);
        tree.kept.keep(vid, header.spec, lengths, header.contributors, |bytes| bytes.copy_from_slice(vector));
        tree.on_written(vid);
        if block < self.blocks {
            self.write_kept(index, vid);
        }
        Ok(())
    }

    /// Writes a result that is kept to the output.
    fn write_kept(&mut self, index: usize, vid: u64) {
        let block = self.block(index, vid);
        let (kept, vector) = self.trees[index].kept.get(vid).expect("a result that has come is kept");
        let op = self.stream.op_of_mut(block).expect("it was submitted");
        if !vector.is_empty() && op.spec.primitive.receives(self.config.rank) {
            op.write_partial(block, kept.contributors, vector);
        }
        op.remaining -= 1;
        self.stats.blocks_in_network += 1;
        self.stats.ranks_in_sums += u64::from(kept.contributors);
        self.stats.ranks_of_sums += u64::from(self.config.job.world_size);
    }

    /// Writes the results of blocks that are submitted after their results have come.
    pub(super) fn write_early(&mut self, now: Time, blocks: Range<u64>) {
        let trees = self.trees.len() as u64;
        for block in blocks {
            let index = (block % trees) as usize;
            let vid = self.vid_from(index, block);
            if vid >= self.trees.iter().map(|tree| tree.top()).max().unwrap_or(0) {
                break;
            }
            if !self.trees[index].has(vid) {
                continue;
            }
            let (kept, _) = self.trees[index].kept.get(vid).expect("a result that has come is kept");
            let op = self.stream.op_of(block).expect("it was submitted");
            let is_same = kept.spec == op.spec && kept.wire_len == lengths(op, block).1;
            if !is_same {
                // All ranks in the result agree, but the result does not name them: the error names any other rank.
                let (op, b_spec, b) = (op.id, op.spec, self.config.rank);
                let a = Rank(u16::from(b.0 == 0));
                self.failing.get_or_insert((op, CollectiveError::Mismatch { a, a_spec: kept.spec, b, b_spec, op }));
                break;
            }
            self.write_kept(index, vid);
        }
        self.complete_collectives(now);
    }
}

// Vectors that a rewind may need again, though their results have come and may overwrite the input.
//
// The result of a VID proves that every rank had sent that VID, so every rank had all results up to a window before
// it. So it is enough to keep a window of contributions, up to the highest result. Where sums may lack ranks, a worker
// keeps results instead, of two windows: results may lie a window ahead of the blocks that the rank has submitted.

/// What is known of a kept vector.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Vector {
    vid: u64,
    /// The collective that it belongs to.
    pub spec: Spec,
    /// Bytes in memory.
    pub len: usize,
    /// Bytes on the wire.
    pub wire_len: usize,
    /// How many ranks' data the vector contains.
    pub contributors: u16,
}

/// The vectors of the latest VIDs.
#[derive(Clone, Debug, Hash)]
pub struct Kept {
    vectors: Vec<Option<Vector>>,
    /// Bytes of room for each vector.
    stride: usize,
    bytes: Vec<u8>,
}

impl Kept {
    /// Room for `capacity` vectors of at most `stride` bytes.
    pub fn new(capacity: usize, stride: usize) -> Kept {
        Kept { vectors: vec![None; capacity], stride, bytes: vec![0; capacity * stride] }
    }

    /// How many vectors there is room for.
    pub fn capacity(&self) -> u64 {
        self.vectors.len() as u64
    }

    fn at(&self, vid: u64) -> usize {
        slot_of(vid, self.vectors.len())
    }

    /// Keeps a vector with this many ranks' data; `write` writes it. It replaces the vector that had its room.
    pub fn keep(
        &mut self,
        vid: u64,
        spec: Spec,
        (len, wire_len): (usize, usize),
        contributors: u16,
        write: impl FnOnce(&mut [u8]),
    ) {
        let at = self.at(vid);
        self.vectors[at] = Some(Vector { vid, spec, len, wire_len, contributors });
        write(&mut self.bytes[at * self.stride..][..len]);
    }

    /// The vector of a VID, if it is still kept.
    pub fn get(&self, vid: u64) -> Option<(Vector, &[u8])> {
        let at = self.at(vid);
        let vector = self.vectors[at].filter(|vector| vector.vid == vid)?;
        Some((vector, &self.bytes[at * self.stride..][..vector.len]))
    }

    /// The most bytes that a vector may have.
    pub fn longest(&self) -> usize {
        self.stride
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::*;

    #[test]
    fn a_window_of_vectors_is_kept_and_no_more() {
        let mut kept = Kept::new(3, 2);
        let spec = Spec::allreduce(1, DType::I8, ReduceOp::Sum);
        for vid in 0..5 {
            kept.keep(vid, spec, (1, 1), 1, |bytes| bytes[0] = vid as u8);
        }
        assert!(kept.get(0).is_none() && kept.get(1).is_none());
        for vid in 2..5 {
            assert_eq!(kept.get(vid).map(|(_, bytes)| bytes.to_vec()), Some(vec![vid as u8]));
        }
        assert!(kept.get(5).is_none());
    }
}
