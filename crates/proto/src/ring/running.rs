//! One collective on one rank: which blocks have come, which are passed on, and when the collective is complete.

use super::layout::{Block, Layout};
use super::wire::{DATA_LEN, Data, Phase};
use crate::contract::config::JobConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::Collective;
use crate::contract::ids::Rank;
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::time::Time;

/// A set of blocks.
#[derive(Clone, Hash)]
struct BlockSet(Vec<u64>);

impl BlockSet {
    fn new(numbers: usize) -> BlockSet {
        BlockSet(vec![0; numbers.div_ceil(64)])
    }

    fn contains(&self, block: Block) -> bool {
        self.0[block.0 as usize / 64] & 1 << (block.0 % 64) != 0
    }

    fn insert(&mut self, block: Block) {
        self.0[block.0 as usize / 64] |= 1 << (block.0 % 64);
    }
}

/// A collective that is not complete, or whose packets the successor has not all acknowledged yet.
#[derive(Clone, Hash)]
pub struct Running {
    /// The data.
    pub tensor: Box<dyn Tensor>,
    /// The collective.
    pub spec: Spec,
    /// When to give up.
    pub deadline: Option<Time>,
    /// When it was submitted.
    pub submitted_at: Time,
    /// Blocks that the predecessor must still bring.
    pub to_receive: u32,
    /// Blocks that must still be sent for the first time.
    pub to_send: u32,
    /// Blocks that the successor has not acknowledged, including those that must still be sent.
    pub unacknowledged: u32,
    /// When all blocks had been received and sent.
    pub finished_at: Option<Time>,
    op: u64,
    layout: Layout,
    me: u16,
    world_size: u16,
    /// Own blocks that were handed out to be sent.
    own_given: u32,
    reduced: BlockSet,
    gathered: BlockSet,
}

impl Running {
    /// A collective at its start.
    pub fn new(now: Time, op: u64, collective: Collective, me: Rank, job: &JobConfig) -> Running {
        let spec = collective.tensor.spec();
        let layout = Layout::new(&spec, job);
        let (me, world_size) = (me.0, job.world_size);
        let all = layout.total_blocks();
        let but = |chunk: u32| all - layout.blocks_in((chunk % u32::from(world_size)) as u16);
        let rank = u32::from(me);
        let to_send = but(rank + 1) + but(rank + 2);
        Running {
            tensor: collective.tensor,
            spec,
            deadline: collective.deadline,
            submitted_at: now,
            to_receive: but(rank) + but(rank + 1),
            to_send,
            unacknowledged: to_send,
            finished_at: None,
            op,
            layout,
            me,
            world_size,
            own_given: 0,
            reduced: BlockSet::new(layout.number_space()),
            gathered: BlockSet::new(layout.number_space()),
        }
    }

    /// The chunk `distance` after this rank's own.
    fn chunk_after(&self, distance: u32) -> u16 {
        ((u32::from(self.me) + distance) % u32::from(self.world_size)) as u16
    }

    /// The next block of the chunk with which this rank begins the reduction: step 0 of reduce-scatter.
    pub fn next_own(&mut self) -> Option<Block> {
        let block = self.layout.blocks(self.me).nth(self.own_given as usize)?;
        self.own_given += 1;
        Some(block)
    }

    /// True if [`Running::next_own`] has more to give.
    pub fn has_own(&self) -> bool {
        self.own_given < self.layout.blocks_in(self.me)
    }

    /// Number of blocks of the tensor.
    pub fn total_blocks(&self) -> u32 {
        self.layout.total_blocks()
    }

    /// Takes in a block from the predecessor; returns the block and phase to pass on to the successor, if any. The
    /// vector is not read if the block does not fit.
    pub fn apply(&mut self, data: &Data, vector: &[u8]) -> Result<Option<(Block, Phase)>, DropReason> {
        let block = self.layout.block_at(data.offset).ok_or(DropReason::BadField)?;
        let range = self.layout.range(block);
        if vector.len() != self.tensor.native_len(range.len()) {
            return Err(DropReason::BadLength);
        }
        let chunk = self.layout.chunk_of(block);
        let forward = match data.phase {
            Phase::Reduce => {
                if chunk == self.me {
                    return Err(DropReason::BadField);
                }
                if self.reduced.contains(block) {
                    return Err(DropReason::Duplicate);
                }
                self.reduced.insert(block);
                if self.spec.primitive.contributes(Rank(self.me)) {
                    self.tensor.accumulate(range.clone(), vector);
                } else {
                    self.tensor.write(range.clone(), vector);
                }
                let phase = if chunk == self.chunk_after(1) {
                    // This is the last contribution: the sum is divided once, here, so that all ranks get the same
                    // bits.
                    self.tensor.divide(range, self.world_size);
                    Phase::Gather
                } else {
                    Phase::Reduce
                };
                Some((block, phase))
            }
            Phase::Gather => {
                if chunk == self.chunk_after(1) {
                    return Err(DropReason::BadField);
                }
                if self.gathered.contains(block) {
                    return Err(DropReason::Duplicate);
                }
                if chunk != self.me && !self.reduced.contains(block) {
                    return Err(DropReason::Ahead);
                }
                self.gathered.insert(block);
                self.tensor.write(range, vector);
                (chunk != self.chunk_after(2)).then_some((block, Phase::Gather))
            }
        };
        self.to_receive -= 1;
        Ok(forward)
    }

    /// Writes a block's vector; returns the bytes in the buffer and on the wire.
    ///
    /// When a packet is sent again, its block may have moved on here meanwhile, and the vector may differ. This can
    /// only be after the successor has taken in the packet, since everything that comes back has passed the successor.
    /// So the successor drops the packet as a duplicate.
    pub fn read(&self, block: Block, phase: Phase, vector: &mut [u8]) -> (usize, usize) {
        let range = self.layout.range(block);
        let len = self.tensor.native_len(range.len());
        let wire_len = range.len() * self.spec.dtype.size();
        if phase == Phase::Reduce && self.layout.chunk_of(block) == self.me {
            if self.spec.primitive.contributes(Rank(self.me)) {
                self.tensor.read_input(range, &mut vector[..len]);
            } else {
                vector[..len].fill(0);
            }
        } else {
            self.tensor.read_output(range, &mut vector[..len]);
        }
        (len, wire_len)
    }

    /// A block's header, except sequence number and attempt.
    pub fn header(&self, block: Block, phase: Phase) -> Data {
        let offset = self.layout.range(block).start as u32;
        Data { seq: 0, offset, spec: self.spec, op: self.op as u16, phase, ack_now: false, attempt: 1 }
    }

    /// A copy of a packet, which outlives the collective.
    pub fn copy(&self, block: Block, phase: Phase) -> PacketCopy {
        let mut vector = vec![0; self.tensor.native_len(self.layout.range(block).len())];
        let (_, wire_len) = self.read(block, phase, &mut vector);
        PacketCopy {
            header: self.header(block, phase),
            vector: vector.into(),
            wire_len: DATA_LEN + wire_len,
            until: self.deadline,
        }
    }

    /// Completes the collective of a job with one rank: the output is the input.
    pub fn complete_alone(&mut self) {
        let mut vector = Vec::new();
        for block in self.layout.blocks(0) {
            let range = self.layout.range(block);
            vector.resize(self.tensor.native_len(range.len()), 0);
            self.tensor.read_input(range.clone(), &mut vector);
            self.tensor.write(range.clone(), &vector);
            self.tensor.divide(range, 1);
        }
        (self.to_receive, self.to_send, self.unacknowledged) = (0, 0, 0);
    }
}

/// A block on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// The collective.
    pub op: u64,
    /// The block.
    pub block: Block,
    /// Partial sum or result.
    pub phase: Phase,
}

/// What a packet carries.
#[derive(Clone, Debug, Hash)]
pub struct Cargo {
    /// The block.
    pub item: Item,
    /// The packet, if its tensor was handed back before the acknowledgement came.
    pub copy: Option<PacketCopy>,
}

/// A packet that no longer needs its tensor.
#[derive(Clone, Debug, Hash)]
pub struct PacketCopy {
    /// The header; its sequence number and attempt have no meaning.
    pub header: Data,
    /// The vector.
    pub vector: Box<[u8]>,
    /// UDP payload bytes of the packet on the wire.
    pub wire_len: usize,
    /// The packet is not needed after this time.
    pub until: Option<Time>,
}
