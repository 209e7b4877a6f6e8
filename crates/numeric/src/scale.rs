//! Block floating point: the exponent that ranks agree on, and the scaling factor that follows from it.
//!
//! SwitchML §4.6 and appendix E. The factor is a power of two, `f = 2^shift`, the largest that keeps the sum of `world`
//! scaled elements inside 32 bits (Theorem 2). A power of two makes `f * x` exact in binary32, so that rounding to an
//! integer is the only error; it is at most half a unit per rank, which keeps Theorem 1's bound `n/f` for the paper's
//! larger `f = (2^31-1)/(n * 2^m)` too.
//!
//! A block with a non-finite element in any rank spends the high bits of each 32-bit word on two counters, of positive
//! and of negative infinities (a NaN counts as both); the rest holds the finite sum with a smaller `f`.

/// What one rank, or all of them together, say about the magnitude of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockExponent {
    /// The smallest `m` with `|x| <= 2^m` for every finite `x` of the block; [`BlockExponent::ZERO`]'s for all zeros.
    pub exponent: i16,
    /// The block holds an infinity or a NaN.
    pub non_finite: bool,
}

impl BlockExponent {
    /// The block of zeros, or of nothing: the neutral element of [`BlockExponent::join`].
    pub const ZERO: BlockExponent = BlockExponent { exponent: i16::MIN, non_finite: false };

    /// What two ranks' blocks say together.
    pub fn join(self, other: BlockExponent) -> BlockExponent {
        BlockExponent { exponent: self.exponent.max(other.exponent), non_finite: self.non_finite | other.non_finite }
    }
}

/// How a block's elements become fixed point and back; the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// `f = 2^shift`.
    pub shift: i32,
    /// Width of each of the two counters of infinities at the top of a word; 0 where all elements are finite.
    pub counter_bits: u32,
    /// Number of ranks that are summed.
    pub world: u16,
}

impl Scale {
    /// The scale that `world` ranks use for a block whose agreed exponent is `block`.
    pub fn new(block: BlockExponent, world: u16) -> Scale {
        let n = u32::from(world.max(1));
        let counter_bits = if block.non_finite { u32::BITS - n.leading_zeros() } else { 0 };
        // n * (f * 2^m + 1/2) must stay below 2^(31 - 2 * counter_bits): the world's own bits, and one for the sign.
        let world_bits = (n as f64).log2().ceil() as i32;
        let shift = if block.exponent == i16::MIN {
            0
        } else {
            30 - 2 * counter_bits as i32 - world_bits - i32::from(block.exponent)
        };
        Scale { shift, counter_bits, world }
    }

    /// Integers, which need no scaling.
    pub fn integer(world: u16) -> Scale {
        Scale { shift: 0, counter_bits: 0, world }
    }
}
