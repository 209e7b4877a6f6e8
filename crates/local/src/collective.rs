//! A collective: what the ranks must agree on, and which elements each chunk and each rank's share of it has.

use std::fmt;
use std::ops::Range;

use tributary_numeric::{DType, ReduceOp};

use crate::handover::ChunkKind;

/// Bytes of a slot: the chunks of a few ranks fit into a core's second cache together.
pub const SLOT_BYTES: usize = 128 << 10;
/// Up to this many bytes in all slots together every rank reduces all elements: to wait for others' shares takes longer.
const DIRECT_BYTES: usize = 128 << 10;
/// Shares begin at cache lines.
const LINE: usize = 64;

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The result on every rank.
    AllReduce,
    /// The result on one rank.
    Reduce {
        /// That rank.
        root: u16,
    },
    /// Each rank gets its share of the result.
    ReduceScatter,
    /// Each rank's bytes on every rank.
    AllGather,
    /// One rank's bytes on every rank.
    Broadcast {
        /// That rank.
        root: u16,
    },
}

impl Kind {
    fn code_and_root(self) -> (u32, u16) {
        match self {
            Kind::AllReduce => (1, 0),
            Kind::Reduce { root } => (2, root),
            Kind::ReduceScatter => (3, 0),
            Kind::AllGather => (4, 0),
            Kind::Broadcast { root } => (5, root),
        }
    }

    fn of_code(code: u32, root: u16) -> Option<Kind> {
        Some(match code {
            1 => Kind::AllReduce,
            2 => Kind::Reduce { root },
            3 => Kind::ReduceScatter,
            4 => Kind::AllGather,
            5 => Kind::Broadcast { root },
            _ => return None,
        })
    }

    /// True if elements are combined.
    pub fn reduces(self) -> bool {
        matches!(self, Kind::AllReduce | Kind::Reduce { .. } | Kind::ReduceScatter)
    }
}

/// What all ranks bring alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// What it does.
    pub kind: Kind,
    /// The elements; bytes (`u8`) where none are combined.
    pub dtype: DType,
    /// How they are combined.
    pub op: ReduceOp,
    /// Elements of a rank's input; of an all-gather and a broadcast those of one rank.
    pub elements: usize,
}

impl Description {
    /// How many words a description has.
    pub const WORDS: usize = 5;

    /// The description as words.
    pub fn words(&self) -> [u32; Self::WORDS] {
        let (code, root) = self.kind.code_and_root();
        let elements = self.elements as u64;
        let types = u32::from(self.dtype as u8) << 8 | u32::from(self.op.code());
        [code, types, elements as u32, (elements >> 32) as u32, u32::from(root)]
    }

    /// The description of words; `None` if they have no meaning.
    pub fn of_words([code, types, low, high, root]: [u32; Self::WORDS]) -> Option<Description> {
        Some(Description {
            kind: Kind::of_code(code, u16::try_from(root).ok()?)?,
            dtype: DType::from_code((types >> 8) as u8)?,
            op: ReduceOp::from_code(types as u8)?,
            elements: usize::try_from(u64::from(high) << 32 | u64::from(low)).ok()?,
        })
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Description { kind, dtype, op, elements } = self;
        match kind {
            Kind::AllReduce if *elements == 0 => write!(f, "barrier"),
            Kind::AllReduce => write!(f, "{op} of {elements} {dtype} elements"),
            Kind::Reduce { root } => write!(f, "{op} of {elements} {dtype} elements for rank {root}"),
            Kind::ReduceScatter => write!(f, "reduce_scatter: {op} of {elements} {dtype} elements"),
            Kind::AllGather => write!(f, "all_gather of {elements} bytes from each rank"),
            Kind::Broadcast { root } => write!(f, "broadcast of {elements} bytes from rank {root}"),
        }
    }
}

/// How a collective is cut into chunks.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    description: Description,
    ranks: usize,
    /// The most elements of a rank's share of a chunk; of all of a chunk where there are no shares.
    largest: usize,
    /// True if ranks reduce shares.
    shares: bool,
}

/// A rank's share of a chunk: elements of the input, and where they lie in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Elements of the input.
    pub elements: Range<usize>,
    /// Bytes from the beginning of a slot.
    pub offset: usize,
}

impl Plan {
    /// The plan, which is the same on all ranks.
    pub fn new(description: Description, ranks: usize) -> Plan {
        let size = description.dtype.size();
        let is_small = ranks * description.elements * size <= DIRECT_BYTES;
        let shares = match description.kind {
            Kind::AllReduce | Kind::Reduce { .. } => !is_small,
            Kind::ReduceScatter => true,
            Kind::AllGather | Kind::Broadcast { .. } => false,
        };
        let bytes = if shares { SLOT_BYTES / ranks } else { SLOT_BYTES };
        Plan { description, ranks, largest: bytes / LINE * LINE / size, shares }
    }

    /// What is done.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// True if ranks reduce shares.
    pub fn has_shares(&self) -> bool {
        self.shares
    }

    /// How many chunks there are; a collective of no elements has one, too.
    pub fn chunks(&self) -> u32 {
        let chunks = self.extent().div_ceil(self.elements_of_chunk()).max(1);
        u32::try_from(chunks).expect("the memory of a host has fewer chunks")
    }

    /// What a chunk is, by its index.
    pub fn kind(&self, index: u32) -> ChunkKind {
        ChunkKind { shares: self.shares, opens: index == 0 }
    }

    /// The elements that are cut: of a reduce-scatter those of one rank's shard.
    fn extent(&self) -> usize {
        match self.description.kind {
            Kind::ReduceScatter => self.description.elements / self.ranks,
            _ => self.description.elements,
        }
    }

    fn elements_of_chunk(&self) -> usize {
        match self.description.kind {
            Kind::AllReduce | Kind::Reduce { .. } if self.shares => self.largest * self.ranks,
            _ => self.largest,
        }
    }

    /// The elements of a chunk, of those that are cut.
    pub fn chunk(&self, index: u32) -> Range<usize> {
        let start = (index as usize * self.elements_of_chunk()).min(self.extent());
        start..(start + self.elements_of_chunk()).min(self.extent())
    }

    /// A rank's share of a chunk.
    pub fn share(&self, index: u32, rank: usize) -> Share {
        let size = self.description.dtype.size();
        let chunk = self.chunk(index);
        if self.description.kind == Kind::ReduceScatter {
            let shard = rank * self.extent();
            return Share { elements: shard + chunk.start..shard + chunk.end, offset: rank * self.largest * size };
        }
        // The last chunk is divided, too.
        let each = chunk.len().div_ceil(self.ranks).next_multiple_of(LINE / size).min(self.largest);
        let start = (rank * each).min(chunk.len());
        let end = (start + each).min(chunk.len());
        Share { elements: chunk.start + start..chunk.start + end, offset: start * size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(kind: Kind, elements: usize, dtype: DType) -> Description {
        Description { kind, dtype, op: ReduceOp::Sum, elements }
    }

    #[test]
    fn shares_cover_every_element_once_and_do_not_overlap_in_a_slot() {
        for ranks in [2, 3, 4, 7, 64] {
            for dtype in DType::ALL {
                for elements in [0, 1, 63, 1000, 40_003, 1_000_003] {
                    for kind in [Kind::AllReduce, Kind::ReduceScatter] {
                        let elements = if kind == Kind::ReduceScatter { elements * ranks } else { elements };
                        let plan = Plan::new(description(kind, elements, dtype), ranks);
                        let mut seen = vec![0u8; elements];
                        for index in 0..plan.chunks() {
                            let mut end_in_slot = 0;
                            for rank in 0..ranks {
                                let Share { elements, offset } = plan.share(index, rank);
                                assert!(offset >= end_in_slot || elements.is_empty(), "{plan:?} {index} {rank}");
                                end_in_slot = offset + elements.len() * dtype.size();
                                assert!(end_in_slot <= SLOT_BYTES);
                                seen[elements].iter_mut().for_each(|count| *count += 1);
                            }
                        }
                        assert!(seen.iter().all(|&count| count == 1), "{plan:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn descriptions_are_words_and_back() {
        let kinds = [
            Kind::AllReduce,
            Kind::Reduce { root: 7 },
            Kind::ReduceScatter,
            Kind::AllGather,
            Kind::Broadcast { root: 9 },
        ];
        for kind in kinds {
            let all = Description { op: ReduceOp::Bxor, ..description(kind, (1 << 40) + 3, DType::I16) };
            assert_eq!(Description::of_words(all.words()), Some(all));
        }
        assert_eq!(Description::of_words([0; 5]), None);
    }
}
