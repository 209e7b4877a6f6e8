//! Block floating point: the exponent on which ranks agree, and the scaling factor that follows from it.
//!
//! SwitchML §4.6 and appendix E. The factor is a power of two, `f = 2^shift`, the largest for which the sum of `world_size`
//! scaled elements stays inside 32 bits (Theorem 2). `f` is at least half of the paper's `(2^31-1)/(n * 2^m)`, scaling
//! by it is exact, and rounding to nearest errs by half a unit where the paper allows a whole unit. So Theorem 1's
//! bound `n/f` holds with the paper's `f`. `docs/numerics.md` has the proofs.
//!
//! If any rank has a non-finite element in a block, the high bits of each 32-bit word are two counters, of positive and
//! of negative infinities (a NaN counts as both); the rest holds the finite sum with a smaller `f`. With more than
//! [`Scale::MAX_WORLD_SIZE_WITH_SIGNS`] ranks there is room for one counter only, of all elements that are not finite.

use crate::dtype::{DType, ReduceOp};

/// The magnitude of one block, on one rank or on all ranks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockExponent {
    /// The smallest `m` with `|x| <= 2^m` for every finite `x` of the block; for a block of zeros that of
    /// [`BlockExponent::ZERO`]. Of a block of rotated codes: its norm, as [`crate::thc`] counts it.
    pub exponent: i16,
    /// The block holds an infinity or a NaN.
    pub non_finite: bool,
}

impl BlockExponent {
    /// A block of zeros, or an empty block: the neutral element of [`BlockExponent::join`].
    pub const ZERO: BlockExponent = BlockExponent { exponent: i16::MIN, non_finite: false };
    /// The exponent of the smallest denormal of binary32.
    pub const MIN: i16 = -149;
    /// The exponent of binary32's largest numbers.
    pub const MAX: i16 = 128;

    /// The largest exponent that a block of this type can have. A larger one would scale every rank's elements to
    /// zeros. Integers and binary64 are not scaled, and their exponent is never read.
    pub const fn largest(dtype: DType) -> i16 {
        match dtype {
            DType::F32 | DType::BF16 => BlockExponent::MAX,
            // 65,504 is the largest number.
            DType::F16 => 16,
            _ => i16::MAX,
        }
    }

    /// The exponent of two ranks' blocks together.
    pub fn join(self, other: BlockExponent) -> BlockExponent {
        BlockExponent { exponent: self.exponent.max(other.exponent), non_finite: self.non_finite | other.non_finite }
    }

    /// The exponent of a block whose largest finite magnitude has these bits as a binary32.
    pub fn of_magnitude(bits: u32) -> BlockExponent {
        let (biased, fraction) = ((bits >> 23) as i16, bits & 0x7f_ffff);
        let exponent = match biased {
            0 if fraction == 0 => return BlockExponent::ZERO,
            // A denormal is fraction * 2^-149.
            0 => BlockExponent::MIN + (u32::BITS - (fraction - 1).leading_zeros()) as i16,
            _ => biased - 127 + i16::from(fraction != 0),
        };
        BlockExponent { exponent, non_finite: false }
    }

    /// Theorem 1's bound `n/f` on the error of a sum over `world_size` ranks, with the paper's `f = (2^31-1)/(n * 2^m)`. It
    /// holds for blocks without non-finite elements; the rounding of the result to its own type is not included.
    pub fn paper_bound(self, world_size: u16) -> f64 {
        let n = f64::from(world_size);
        if self == BlockExponent::ZERO {
            0.0
        } else {
            n * n * power_of_two(self.exponent.into()) / (2f64.powi(31) - 1.0)
        }
    }
}

/// How a block's elements become fixed point and back; the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    /// `f = 2^shift`.
    pub shift: i32,
    /// Width of each counter of infinities at the top of a word; 0 if all elements are finite.
    pub counter_bits: u32,
    /// Number of ranks that are summed.
    pub world_size: u16,
    /// How elements and sums travel as codes; `None`: as words of 32 bits.
    pub codes: Option<Codes>,
}

/// How elements and their sums travel as codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// Elements are codes of 8 bits, `round(x * q * 2^shift)`, and their sums come back in this width. See
    /// [`Scale::codes`].
    Linear(CodeWidth),
    /// The block is rotated, and its elements are codes of 4 bits. See [`Scale::rotated`].
    Rotated(Rotated),
}

/// What ranks agree on for a block of rotated codes, beside its norm; and what a rank draws by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rotated {
    /// Draws the signs: the same on all ranks, and another one for each block.
    pub signs: u64,
    /// Draws how a rank rounds the block.
    pub rounding: u64,
    /// The width of a sum.
    pub width: CodeWidth,
    /// Some rank has an element that is not finite: the block brings only where these are.
    pub non_finite: bool,
}

/// How the sum of rounded words becomes a result: `result = sum * unit / divisor`.
#[derive(Clone, Copy, Debug)]
pub struct Unscale {
    /// `1/f`: a power of two.
    pub unit: f64,
    /// The number of ranks for an average, 1 for a sum.
    pub divisor: f64,
}

impl Unscale {
    /// The values for a sum or an average with this scale.
    pub(crate) fn of(scale: Scale, op: ReduceOp) -> Unscale {
        let divisor = scale.divisor(op);
        match scale.world_size.is_power_of_two() {
            // Division by a power of two is exact, so the unit includes it.
            true => Unscale { unit: scale.unit() / divisor, divisor: 1.0 },
            false => Unscale { unit: scale.unit(), divisor },
        }
    }
}

/// The width in which hosts get a sum of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeWidth {
    /// 8 bits. A sum of codes of 8 bits is rounded once more, in steps of which 127 hold every sum.
    Eight,
    /// 16 bits, exact.
    Sixteen,
}

impl CodeWidth {
    /// The width that holds the sum of one level of each rank (`LEVELS` of [`crate::thc`] end at 30).
    pub fn of_levels(world_size: u16) -> CodeWidth {
        if world_size <= CodeWidth::MOST_RANKS_IN_EIGHT { CodeWidth::Eight } else { CodeWidth::Sixteen }
    }

    const MOST_RANKS_IN_EIGHT: u16 = u8::MAX as u16 / LARGEST_LEVEL;

    /// Bytes of a sum.
    pub const fn bytes(self) -> usize {
        match self {
            CodeWidth::Eight => 1,
            CodeWidth::Sixteen => 2,
        }
    }
}

/// The largest integer that stands for a code of 4 bits.
pub(crate) const LARGEST_LEVEL: u16 = 30;

/// The elements of a whole rotated block of at least `elements`: a power of two, and an even number of codes.
pub const fn padded(elements: usize) -> usize {
    if elements <= 2 { 2 } else { elements.next_power_of_two() }
}

impl Scale {
    /// The most ranks of one sum: at this number, the counter leaves 17 bits for the finite part.
    pub const MAX_WORLD_SIZE: u16 = 16_384;
    /// The most ranks for which infinities keep their sign: at this number, two counters leave 12 bits for the finite
    /// part. With more ranks a sum that is not finite is NaN.
    pub const MAX_WORLD_SIZE_WITH_SIGNS: u16 = 1023;
    /// The most ranks whose levels of rotated codes 16 bits hold.
    pub const MAX_WORLD_SIZE_ROTATED: u16 = u16::MAX / LARGEST_LEVEL;

    /// The scale that `world_size` ranks, 1 to [`Scale::MAX_WORLD_SIZE`], use for a block whose agreed exponent is `block`. An
    /// exponent that no binary32 has (such as that of zeros) counts as the nearest one that a binary32 has.
    pub fn new(block: BlockExponent, world_size: u16) -> Scale {
        debug_assert!((1..=Scale::MAX_WORLD_SIZE).contains(&world_size));
        let world_size_bits = u16::BITS - world_size.leading_zeros();
        let counter_bits = if block.non_finite { world_size_bits } else { 0 };
        let exponent = block.exponent.clamp(BlockExponent::MIN, BlockExponent::MAX);
        // world_size < 2^world_size_bits, and |f * x| <= f * 2^m = 2^(sum_bits - world_size_bits), an integer that rounding cannot
        // exceed. So the sum stays below 2^sum_bits. With counters, sum_bits - world_size_bits is still 1 at 1,023 ranks
        // (two counters) and at 16,384 ranks (one counter).
        let scale = Scale { shift: 0, counter_bits, world_size, codes: None };
        let sum_bits = 31 - scale.bits_of_counters() as i32;
        Scale { shift: sum_bits - world_size_bits as i32 - i32::from(exponent), ..scale }
    }

    /// The scale of a block of codes: the largest magnitude `2^m` has the code `q`, the largest with which a sum over
    /// `world_size` ranks fits 16 bits ([`Scale::largest_code`]).
    pub fn codes(block: BlockExponent, world_size: u16, width: CodeWidth) -> Scale {
        debug_assert!((1..=Scale::MAX_WORLD_SIZE).contains(&world_size));
        let shift = -i32::from(block.exponent.clamp(BlockExponent::MIN, BlockExponent::MAX));
        Scale { shift, counter_bits: 0, world_size, codes: Some(Codes::Linear(width)) }
    }

    /// The scale of a block of rotated codes of 4 bits, whose exponent is its norm ([`crate::thc`]). Two numbers draw the
    /// signs, the same on all ranks, and the rounding of this rank.
    pub fn rotated(block: BlockExponent, world_size: u16, signs: u64, rounding: u64) -> Scale {
        let width = CodeWidth::of_levels(world_size);
        let rotated = Rotated { signs, rounding, width, non_finite: block.non_finite };
        Scale { shift: -i32::from(block.exponent), counter_bits: 0, world_size, codes: Some(Codes::Rotated(rotated)) }
    }

    /// The same kind of scale for a block with another exponent.
    pub fn of_block(self, block: BlockExponent) -> Scale {
        match self.codes {
            None => Scale::new(block, self.world_size),
            Some(Codes::Linear(width)) => Scale::codes(block, self.world_size, width),
            Some(Codes::Rotated(Rotated { signs, rounding, .. })) => {
                Scale::rotated(block, self.world_size, signs, rounding)
            }
        }
    }

    /// The largest code: 127 up to 258 ranks, and less with more, so that no sum overflows 16 bits.
    pub fn largest_code(world_size: u16) -> u16 {
        (i16::MAX as u16 / world_size).min(i8::MAX as u16)
    }

    /// The width of a step of a sum in 8 bits, in steps of a code: the smallest with which 127 steps hold every sum.
    pub fn code_step(world_size: u16) -> u16 {
        (world_size * Scale::largest_code(world_size)).div_ceil(i8::MAX as u16)
    }

    /// Bytes of the vector of a block that a host sends.
    pub fn sent_len(self, elements: usize) -> usize {
        match self.codes {
            None => 4 * elements,
            Some(Codes::Linear(_)) => elements,
            Some(Codes::Rotated(_)) => padded(elements) / 2,
        }
    }

    /// Bytes of the summed vector of a block that a host gets.
    pub fn result_len(self, elements: usize) -> usize {
        match self.codes {
            None => 4 * elements,
            Some(Codes::Linear(width)) => width.bytes() * elements,
            Some(Codes::Rotated(Rotated { width, .. })) => width.bytes() * padded(elements),
        }
    }

    /// True if positive and negative infinities are counted separately.
    pub(crate) fn keeps_signs(self) -> bool {
        self.world_size <= Scale::MAX_WORLD_SIZE_WITH_SIGNS
    }

    /// Bits at the top of a word that hold counters.
    pub fn bits_of_counters(self) -> u32 {
        if self.keeps_signs() { 2 * self.counter_bits } else { self.counter_bits }
    }

    /// The scale of integers, which need no scaling.
    pub fn integer(world_size: u16) -> Scale {
        Scale { shift: 0, counter_bits: 0, world_size, codes: None }
    }

    /// The largest distance of a decoded sum from the exact sum, `n/2f`, before the decoded sum is rounded to its own
    /// type. It is never above [`BlockExponent::paper_bound`] if all elements are finite and words of 32 bits. For codes
    /// `f` is `q * 2^shift`, and in 8 bits half a step of the sum comes on top. The bound of an average is `world_size`
    /// times smaller. Rotated codes have a bound for the block's length, not for each element: [`crate::thc`].
    pub fn bound(self) -> f64 {
        let half_units = match self.codes {
            Some(Codes::Linear(CodeWidth::Eight)) => self.world_size + Scale::code_step(self.world_size),
            Some(_) | None => self.world_size,
        };
        f64::from(half_units) / 2.0 * self.unit() / self.codes_of_range()
    }

    /// Codes from 0 to the range `2^m`; 1 for words, whose factor is a power of two.
    fn codes_of_range(self) -> f64 {
        if self.codes.is_some() { f64::from(Scale::largest_code(self.world_size)) } else { 1.0 }
    }

    /// The factor of a code: `q * 2^shift`, exact.
    pub(crate) fn code_factor(self) -> f64 {
        self.codes_of_range() * power_of_two(self.shift)
    }

    /// How a sum of codes becomes a result: the unit is a power of two times a step of at most 259.
    pub(crate) fn unscale_codes(self, op: ReduceOp) -> Unscale {
        let step = match self.codes {
            Some(Codes::Linear(CodeWidth::Eight)) => f64::from(Scale::code_step(self.world_size)),
            Some(_) | None => 1.0,
        };
        Unscale { unit: self.unit() * step, divisor: self.divisor(op) * self.codes_of_range() }
    }

    /// The number by which a sum is divided.
    pub(crate) fn divisor(self, op: ReduceOp) -> f64 {
        if op == ReduceOp::Avg { f64::from(self.world_size) } else { 1.0 }
    }

    /// `f` as two factors of binary32 that are normal for every shift of [`Scale::new`]. Multiplying by one after the
    /// other errs only if the product is below 2^-126, which becomes 0 anyway.
    pub(crate) fn factors(self) -> [f32; 2] {
        let first = self.shift.clamp(-126, 127);
        [power_of_two(first) as f32, power_of_two((self.shift - first).clamp(-126, 127)) as f32]
    }

    /// `1/f`, exact.
    pub(crate) fn unit(self) -> f64 {
        power_of_two(-self.shift)
    }
}

/// `2^exponent` for the exponents of normal binary64 numbers; other exponents count as the nearest of these.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent.clamp(-1022, 1023) + 1023) as u64) << 52)
}
