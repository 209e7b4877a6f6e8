//! How vectors of a block are combined, wherever they come from.

use tributary_numeric::{BlockExponent, Combine, Fixed16, ReduceOp, Scale};

use super::OrderedAccumulator;
use crate::contract::numbers::Encoding;

/// The form of a vector on the wire: a host's, or a switch's, which is wider where the host's form would lose precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorFormat {
    /// A vector that a host sends or gets.
    Host,
    /// A partial result on its way up from switch to switch.
    Partial,
}

impl VectorFormat {
    /// Bytes on the wire of a vector of this many elements.
    #[inline]
    pub fn wire_len(self, encoding: &Encoding, elements: u32) -> usize {
        match self {
            VectorFormat::Host => encoding.wire_len(elements as usize),
            VectorFormat::Partial => encoding.partial_wire_len(elements as usize),
        }
    }

    /// Bytes of a vector of this many elements in a packet buffer.
    #[inline]
    pub fn buffer_len(self, encoding: &Encoding, elements: u32) -> usize {
        match self {
            VectorFormat::Host => encoding.buffer_len(elements as usize),
            VectorFormat::Partial => encoding.partial_buffer_len(elements as usize),
        }
    }

    /// Adds a child's vector to a block, at the child's place.
    #[inline]
    pub fn add(self, sums: &mut OrderedAccumulator, block: usize, child: usize, vector: &[u8]) -> bool {
        match self {
            VectorFormat::Host => sums.add(block, child, vector),
            VectorFormat::Partial => sums.add_partial(block, child, vector),
        }
    }

    /// Writes what a block's accumulator holds into a vector.
    #[inline]
    pub fn load(self, sums: &OrderedAccumulator, block: usize, vector: &mut [u8]) {
        match self {
            VectorFormat::Host => sums.load(block, vector),
            VectorFormat::Partial => sums.load_partial(block, vector),
        }
    }
}

/// How a vector is combined with a node's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// `lanes <- vector`.
    Store,
    /// `lanes <- lanes o vector`.
    Right,
    /// `lanes <- vector o lanes`.
    Left,
}

/// 16-bit floats that hosts send unconverted and that are added in fixed point (SwitchML §4.6).
#[derive(Clone, Copy, Hash)]
pub struct Scaled {
    /// The kernels that convert to and from fixed point.
    pub kernels: &'static Fixed16,
    /// The block's exponent, on which its ranks have agreed: shorter than the scale, of which all blocks would keep one.
    pub exponent: BlockExponent,
    /// Number of ranks that are summed.
    pub world_size: u16,
    /// The sum or the average.
    pub op: ReduceOp,
}

impl Scaled {
    /// The block's scale.
    #[inline]
    pub fn scale(&self) -> Scale {
        Scale::new(self.exponent, self.world_size)
    }
}

/// Which of a block's vectors are combined with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// Siblings of the tree over the positions: one expression, whichever vector comes first.
    Tree,
    /// Siblings of a tree over more positions than this accumulator has, as far as both are here: one switch of
    /// several.
    Forest,
    /// Vectors as they come, in this many buffers in turn, at least one. The last vector merges the buffers into the
    /// first, in their order.
    Buffers(u16),
}

/// How the vectors of one block are combined.
#[derive(Clone, Copy, Hash)]
pub struct Rule {
    pub(super) combine: &'static Combine,
    pub(super) arrangement: Arrangement,
    pub(super) scaled: Option<Scaled>,
    /// The number of the job's own operator that combines, if one does.
    pub(super) own: Option<u8>,
    /// The lanes hold a result, as it came, in place of contributions.
    pub(super) is_replaced: bool,
}

impl Rule {
    /// Along the tree, or in any order if the order makes no difference.
    pub fn native(combine: &'static Combine, is_ordered: bool) -> Rule {
        Rule::arranged(combine, if is_ordered { Arrangement::Tree } else { Arrangement::Buffers(1) })
    }

    /// In this arrangement.
    pub fn arranged(combine: &'static Combine, arrangement: Arrangement) -> Rule {
        Rule { combine, arrangement, scaled: None, own: None, is_replaced: false }
    }

    /// The same with one of the job's own operators, if `own` names one.
    pub fn by(self, own: Option<u8>) -> Rule {
        Rule { own, ..self }
    }

    /// Along the tree.
    pub fn along_the_tree(combine: &'static Combine) -> Rule {
        Rule::arranged(combine, Arrangement::Tree)
    }

    /// As vectors come, where the order makes no difference to the result.
    pub fn in_any_order(combine: &'static Combine) -> Rule {
        Rule::arranged(combine, Arrangement::Buffers(1))
    }

    /// As vectors come; hosts' vectors are converted to fixed point here, and partial results are in fixed point.
    pub fn in_fixed_point(combine: &'static Combine, scaled: Scaled) -> Rule {
        Rule { scaled: Some(scaled), ..Rule::in_any_order(combine) }
    }

    /// Bytes of an element on the wire.
    pub(super) fn size(&self, format: VectorFormat) -> usize {
        match format {
            VectorFormat::Host => self.scaled.map_or(self.combine.wire_size, |scaled| scaled.kernels.wire_size),
            VectorFormat::Partial => self.combine.partial_size,
        }
    }

    /// Bytes of an element of a result on the wire.
    pub(super) fn result_size(&self) -> usize {
        self.scaled.map_or(self.combine.result_size, |scaled| scaled.kernels.wire_size)
    }

    /// Combines a vector with some lanes, without an operator of the job's own.
    #[inline]
    pub(super) fn step(&self, format: VectorFormat, step: Step, lanes: &mut [u8], vector: &[u8]) {
        let combine = self.combine;
        let combined = match (format, step, &self.scaled) {
            (VectorFormat::Host, Step::Store, Some(scaled)) => {
                return (scaled.kernels.store)(lanes, vector, scaled.scale());
            }
            (VectorFormat::Host, _, Some(scaled)) => return (scaled.kernels.add)(lanes, vector, scaled.scale()),
            (VectorFormat::Host, Step::Store, None) => combine.store,
            (VectorFormat::Host, Step::Right, None) => combine.add,
            (VectorFormat::Host, Step::Left, None) => combine.add_left,
            (VectorFormat::Partial, Step::Store, _) => combine.store_partial,
            (VectorFormat::Partial, Step::Right, _) => combine.add_partial,
            (VectorFormat::Partial, Step::Left, _) => combine.add_left_partial,
        };
        combined(lanes, vector);
    }
}
