//! Results. A result acknowledges this rank's contribution. Where sums need not wait for this rank (§7), results also
//! come for blocks that the rank has not submitted.

use std::ops::Range;

use super::tree::Arrival;
use super::{PanamaHost, lengths, read};
use crate::aggregation::stream::Op;
use crate::congestion::ResultAck;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::packet::{Ecn, Packet};
use crate::contract::tensor::Spec;
use crate::contract::time::Time;
use crate::panama::options::{Quorum, may_lack_ranks};
use crate::panama::wire::{HEADER_LEN, Header, Mismatch};

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
        self.complete_or_leave(now);
        Ok(())
    }

    /// Writes a result to the output. A rewind may need the contribution that it overwrites, so that is kept.
    fn write(&mut self, index: usize, header: &Header, vid: u64, packet: Packet<'_>) -> Result<(), DropReason> {
        let (world_size, rank, block) = (self.config.job.world_size, self.config.rank, self.block(index, vid));
        let (len, wire_len) = self.fits(block, &header.spec, packet)?;
        if header.contributors != world_size {
            return Err(DropReason::BadField);
        }
        let op = self.life.stream.op_of_mut(block).expect("what was sent and has no result has a collective");
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
        let op = self.life.stream.op_of(block).expect("what was sent and has no result has a collective");
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
        if block < self.life.stream.blocks() {
            self.fits(block, &header.spec, packet)?;
        } else if packet.bytes.len() > HEADER_LEN + self.trees[index].kept.longest() {
            return Err(DropReason::BadLength);
        }
        let (vector, tree) = (&packet.bytes[HEADER_LEN..], &mut self.trees[index]);
        let lengths = (vector.len(), packet.wire_len - HEADER_LEN);
        tree.kept.keep(vid, header.spec, lengths, header.contributors, |bytes| bytes.copy_from_slice(vector));
        tree.on_written(vid);
        if block < self.life.stream.blocks() {
            self.write_kept(index, vid);
        }
        Ok(())
    }

    /// Writes a result that is kept to the output.
    fn write_kept(&mut self, index: usize, vid: u64) {
        let block = self.block(index, vid);
        let (kept, vector) = self.trees[index].kept.get(vid).expect("a result that has come is kept");
        let op = self.life.stream.op_of_mut(block).expect("it was submitted");
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
            let op = self.life.stream.op_of(block).expect("it was submitted");
            let is_same = kept.spec == op.spec && kept.wire_len == lengths(op, block).1;
            if !is_same {
                // All ranks in the result agree, but the result does not name them: the error names any other rank.
                let (op, b_spec, b) = (op.id, op.spec, self.config.rank);
                let a = Rank(u16::from(b.0 == 0));
                self.life.dispute(op, Mismatch { a, a_spec: kept.spec, b, b_spec });
                break;
            }
            self.write_kept(index, vid);
        }
        self.complete_or_leave(now);
    }
}
