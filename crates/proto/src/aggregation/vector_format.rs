//! The form of a vector on the wire: a host's vector, or a switch's partial result, which is wider where the host's
//! form would lose precision.

use crate::aggregation::ordered::OrderedAccumulator;
use crate::contract::numbers::Encoding;

/// The form of a vector on the wire.
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
