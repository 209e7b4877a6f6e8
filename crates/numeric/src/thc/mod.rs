//! Codes of 4 bits whose sums need no decoding: tensor homomorphic compression (THC; Li et al., NSDI 2024).
//!
//! A block is rotated with a randomised Hadamard transform, after which its elements look like normal numbers, whatever
//! they were. Each rotated element becomes one of 16 levels of a range that all ranks share. Levels are not evenly spaced;
//! a switch replaces a code by its entry in a table of small integers, and adds these. A sum of entries is the entry of
//! the sum, so that hosts turn the sum back once. `docs/protocols/thc.md` says what comes from the paper.
//!
//! All steps are elementary operations of binary32 in a fixed order: every processor gives the same bits. A seed of the
//! block draws the signs, the same on all ranks; a seed of rank and block draws the rounding. So a packet that is sent
//! again is the same packet.

mod hadamard;

pub(crate) use self::hadamard::{NEAR, Near};
use self::hadamard::{scale_and_flip, scale_flip_and_transform, transform};
use crate::dtype::ReduceOp;
use crate::scale::{BlockExponent, CodeWidth, Codes, LARGEST_LEVEL, Rotated, Scale, padded};

/// The most elements of a block.
pub const MAX_BLOCK: usize = 1024;

/// The integers that stand for the 16 codes: for normal numbers that are clipped at [`CLIP`], these err least of all that
/// are symmetrical and end at [`GRANULARITY`].
pub const LEVELS: [u8; 16] = [0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30];

/// The last level: 8 ranks' sums fit 8 bits, 2,184 ranks' 16.
pub const GRANULARITY: u8 = LARGEST_LEVEL as u8;

/// The middle between the levels, which stands for 0.
const MIDDLE: f32 = GRANULARITY as f32 / 2.0;

/// Where rotated elements are clipped, in units of their standard deviation: one of 32 normal numbers lies beyond.
pub const CLIP: f32 = 2.153_874_7;

/// The code of an element that is not finite, in a block that brings nothing else; other elements have the code 0.
const NOT_FINITE: u32 = 15;

/// The steps of a norm from one power of two to the next.
pub const NORM_STEPS: i16 = 64;

/// `2^(1/64)`, and its square, and so on up to `2^(1/2)`.
const ROOTS: [f64; 6] = [
    1.010_889_286_051_700_5,
    1.021_897_148_654_116_6,
    1.044_273_782_427_413_8,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    std::f64::consts::SQRT_2,
];

/// A block's Euclidean norm on one rank, or the largest one on all ranks: `2^(steps / 64)`, rounded up. It travels as the
/// exponent of a block does.
#[derive(Clone, Copy)]
struct Norm(i32);

impl Norm {
    /// The exponent of the power of two below it, and the rest of it, at least 1 and less than 2.
    fn split(self) -> (i32, f64) {
        let (exponent, steps) = (self.0.div_euclid(NORM_STEPS.into()), self.0.rem_euclid(NORM_STEPS.into()));
        let bits = ROOTS.iter().enumerate().filter(|(bit, _)| steps >> bit & 1 == 1);
        (exponent, bits.map(|(_, root)| root).product())
    }

    fn value(self) -> f64 {
        let (exponent, rest) = self.split();
        rest * 2f64.powi(exponent)
    }

    /// From an element that was multiplied by `2^-exponent` and rotated to units of a level, from the middle one.
    fn levels_per_unit(self) -> f32 {
        (f64::from(MIDDLE) / (f64::from(CLIP) * self.split().1)) as f32
    }

    /// From a distance from the middle level to a rotated element that, with the others of its block, only the transform and
    /// `2^exponent` are missing from. The transform is its own inverse, except for the number of elements: a power of two.
    fn unit(self, elements: usize) -> f32 {
        1.0 / (self.levels_per_unit() * elements as f32)
    }

    /// `2^exponent` as two factors of binary32, since one may have no such power.
    fn power(self, sign: i32) -> [f32; 2] {
        let exponent = sign * self.split().0;
        let first = exponent.clamp(-126, 127);
        [2f32.powi(first), 2f32.powi((exponent - first).clamp(-126, 127))]
    }
}

/// The largest norm of a block whose elements are at most `2^exponent`.
pub const fn largest_norm(exponent: i16) -> i16 {
    (exponent + MAX_BLOCK.ilog2() as i16 / 2) * NORM_STEPS
}

/// The norm of a block of at most [`MAX_BLOCK`] elements, or that one is not finite.
#[inline(always)]
pub(crate) fn norm<T: Copy>(input: &[T], binary32: impl Fn(T) -> f32) -> BlockExponent {
    let square = |x: &T| f64::from(binary32(*x)) * f64::from(binary32(*x));
    // Eight sums side by side, so that vector registers add in the same order.
    let mut squares = [0f64; 8];
    let (whole, rest) = input.as_chunks::<8>();
    for chunk in whole {
        squares.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += square(x));
    }
    let rest: f64 = rest.iter().map(square).sum();
    rounded_up((squares.iter().sum::<f64>() + rest).sqrt())
}

fn rounded_up(norm: f64) -> BlockExponent {
    if !norm.is_finite() {
        return BlockExponent { non_finite: true, ..BlockExponent::ZERO };
    }
    if norm == 0.0 {
        return BlockExponent::ZERO;
    }
    // The logarithm may err by a step in either direction.
    let mut steps = (norm.log2() * f64::from(NORM_STEPS)).floor() as i32 - 1;
    while Norm(steps).value() < norm {
        steps += 1;
    }
    BlockExponent { exponent: steps as i16, non_finite: false }
}

/// What the scale of rotated codes consists of.
fn rotated_and_norm(scale: Scale) -> (Rotated, Norm) {
    match scale.codes {
        Some(Codes::Rotated(rotated)) => (rotated, Norm(-scale.shift)),
        _ => unreachable!("the caller has looked at the kind of codes"),
    }
}

/// A block of at most [`MAX_BLOCK`] elements, followed by zeros.
#[inline(always)]
pub(crate) fn block_of<T: Copy>(input: &[T], binary32: impl Fn(T) -> f32) -> [f32; MAX_BLOCK] {
    // A whole block is not filled with zeros first.
    if let Ok(whole) = <&[T; MAX_BLOCK]>::try_from(input) {
        return whole.map(binary32);
    }
    let mut block = [0f32; MAX_BLOCK];
    block.iter_mut().zip(input).for_each(|(to, x)| *to = binary32(*x));
    block
}

/// Writes the codes of the first `elements` of a block.
#[inline(always)]
pub(crate) fn encode<N: Near>(mut block: [f32; MAX_BLOCK], elements: usize, scale: Scale, vector: &mut [u8]) {
    codes_of::<N>(&mut block[..padded(elements)], scale, vector);
}

/// The same; and what the codes lack of the elements, for error feedback, in their place: all of a block that is not sent
/// as it is, because an element of some rank is not finite; nothing of such an element.
#[inline(always)]
pub(crate) fn encode_with_loss<N: Near>(
    block: &mut [f32; MAX_BLOCK],
    input: impl ExactSizeIterator<Item = f32>,
    scale: Scale,
    vector: &mut [u8],
) {
    let (rotated, norm) = rotated_and_norm(scale);
    let block = &mut block[..padded(input.len())];
    codes_of::<N>(block, scale, vector);
    if rotated.non_finite {
        block.iter_mut().for_each(|x| *x = if x.is_finite() { *x } else { 0.0 });
        return;
    }
    let unit = norm.unit(block.len());
    let (low, high) = block.split_at_mut(vector.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(&*vector) {
        *low = (f32::from(level(byte & 15)) - MIDDLE) * unit;
        *high = (f32::from(level(byte >> 4)) - MIDDLE) * unit;
    }
    turn_back::<N>(block, norm, rotated.signs);
    block.iter_mut().zip(input).for_each(|(loss, x)| *loss = x - *loss);
}

/// `lanes <- levels of codes`. A byte has two codes, of elements that are half a block apart; a lane has 16 bits.
#[inline(always)]
pub(crate) fn store(lanes: &mut [u8], vector: &[u8]) {
    each_level(lanes, vector, |_, level| level);
}

/// The switch's part: `lanes <- lanes + levels of codes`.
#[inline(always)]
pub(crate) fn add(lanes: &mut [u8], vector: &[u8]) {
    each_level(lanes, vector, u16::wrapping_add);
}

#[inline(always)]
fn each_level(lanes: &mut [u8], vector: &[u8], combined: impl Fn(u16, u16) -> u16) {
    assert_eq!(lanes.len(), 4 * vector.len(), "two codes to a byte, two bytes to a lane");
    let (low, high) = lanes.as_chunks_mut().0.split_at_mut(vector.len());
    for (lane, code) in low.iter_mut().zip(vector) {
        *lane = combined(u16::from_ne_bytes(*lane), level(code & 15).into()).to_ne_bytes();
    }
    for (lane, code) in high.iter_mut().zip(vector) {
        *lane = combined(u16::from_ne_bytes(*lane), level(code >> 4).into()).to_ne_bytes();
    }
}

/// `vector <- lanes`, whose sums fit 8 bits.
#[inline(always)]
pub(crate) fn load_8(lanes: &[u8], vector: &mut [u8]) {
    assert_eq!(lanes.len(), 2 * vector.len(), "two bytes to a lane");
    for (sum, lane) in vector.iter_mut().zip(lanes.as_chunks().0) {
        *sum = u16::from_ne_bytes(*lane) as u8;
    }
}

/// The sum or the average of the ranks' blocks, in `memory`, from the sums of their levels.
#[inline(always)]
pub(crate) fn decode<'a, N: Near>(
    vector: &[u8],
    scale: Scale,
    op: ReduceOp,
    elements: usize,
    memory: &'a mut [f32; MAX_BLOCK],
) -> &'a [f32] {
    let (rotated, norm) = rotated_and_norm(scale);
    let block = &mut memory[..padded(elements)];
    if rotated.non_finite {
        each_sum(block, vector, rotated.width, |sum| if sum == 0.0 { 0.0 } else { f32::NAN });
    } else {
        let ranks = f32::from(scale.world_size);
        let (middle, unit) = (MIDDLE * ranks, norm.unit(block.len()) / if op == ReduceOp::Avg { ranks } else { 1.0 });
        each_sum(block, vector, rotated.width, |sum| (sum - middle) * unit);
        turn_back::<N>(block, norm, rotated.signs);
    }
    &memory[..elements]
}

/// Fills a block from its sums, which are integers.
#[inline(always)]
fn each_sum(block: &mut [f32], vector: &[u8], width: CodeWidth, element: impl Fn(f32) -> f32) {
    match width {
        CodeWidth::Eight => block.iter_mut().zip(vector).for_each(|(x, sum)| *x = element((*sum).into())),
        CodeWidth::Sixteen => {
            let sums = vector.as_chunks().0.iter();
            block.iter_mut().zip(sums).for_each(|(x, sum)| *x = element(u16::from_be_bytes(*sum).into()));
        }
    }
}

/// The codes of a block, which is rotated if they are those of rotated elements: two to a byte, of elements that are half
/// a block apart.
#[inline(always)]
fn codes_of<N: Near>(block: &mut [f32], scale: Scale, vector: &mut [u8]) {
    assert_eq!(block.len(), 2 * vector.len(), "two codes to a byte");
    let (rotated, norm) = rotated_and_norm(scale);
    if rotated.non_finite {
        pack(block, vector, |x, _| if x.is_finite() { 0 } else { NOT_FINITE }, |_| 0);
        return;
    }
    // Scaled to a norm below 2, and not divided by the root of the number of elements: so their standard deviation is the
    // block's norm.
    scale_flip_and_transform::<N>(block, norm.power(-1), rotated.signs);
    let half_levels = 0.5 * norm.levels_per_unit();
    pack(block, vector, |x, draw| code(x * half_levels, draw), |at| hash(rotated.rounding, at));
}

/// Writes codes, each from an element and 16 bits that are drawn for it: a hash of the byte's index times [`SPREAD`] has
/// those of both.
#[inline(always)]
fn pack(block: &[f32], vector: &mut [u8], code: impl Fn(f32, u32) -> u32, draws: impl Fn(u32) -> u32) {
    let (low, high) = block.split_at(vector.len());
    let mut at = 0u32;
    for ((byte, low), high) in vector.iter_mut().zip(low).zip(high) {
        let draws = draws(at);
        *byte = (code(*low, draws & 0xffff) | code(*high, draws >> 16) << 4) as u8;
        at = at.wrapping_add(SPREAD);
    }
}

/// The level of a code, as [`LEVELS`] has it: faster in vector registers than to look it up.
#[inline(always)]
const fn level(code: u8) -> u8 {
    // Levels are twice the code, and nearer to the middle by one where they are not at an end or in the middle.
    2 * code + (code.wrapping_sub(1) < 6) as u8 - (code.wrapping_sub(9) < 6) as u8
}

/// The code of a rotated element in units of two levels: one of the two levels around it, the nearer one more probably, so
/// that the error is zero on average. 16 bits are drawn for it.
#[inline(always)]
fn code(half_levels: f32, draw: u32) -> u32 {
    // Rounds to nearest, as a binary32 has no bits for a fraction above 2^23.
    const ROUND: f32 = 1.5 * (1u32 << 23) as f32;
    // Between 7 and 8, so that codes lie between -1/2 and 15 1/2: from 4 to 8 the last bit counts 2^-21. The middle of two
    // draws keeps a code from a tie.
    let middle_and_draw = f32::from_bits(7f32.to_bits() | draw << 5 | 1 << 4);
    // 22 bits have the integer, which is at most 15.
    (from_middle(half_levels) + middle_and_draw + ROUND).to_bits() & 0x3f_ffff
}

/// Where a distance from the middle, in units of two levels, lies between codes, from -7.5 to 7.5: linear between each two
/// levels.
#[inline(always)]
fn from_middle(half_levels: f32) -> f32 {
    // From the middle the levels 1, 2, 4, 6, 8, 10, 12 and 15 have the codes 1/2, 1 1/2 and so on up to 7 1/2; beyond it is
    // the mirror image. A code is half a level, but the second line is twice as steep and the last one two thirds.
    let distance = half_levels.abs();
    let inner = distance + at_least(below(distance - 0.5, 0.5), 0.0);
    let codes = below(below(inner, 2.5 + (2.0 / 3.0) * distance), 7.5);
    // They are never negative.
    f32::from_bits(codes.to_bits() ^ half_levels.to_bits() & 1 << 31)
}

/// The smaller one, and the limit if the other is not a number: one instruction, unlike `min`.
#[inline(always)]
fn below(x: f32, limit: f32) -> f32 {
    if x < limit { x } else { limit }
}

/// The larger one, likewise.
#[inline(always)]
fn at_least(x: f32, limit: f32) -> f32 {
    if x > limit { x } else { limit }
}

/// From a rotated block to its elements.
#[inline(always)]
fn turn_back<N: Near>(block: &mut [f32], norm: Norm, signs: u64) {
    transform::<N>(block);
    scale_and_flip(block, norm.power(1), signs);
}

/// What an index is multiplied by before it is hashed.
const SPREAD: u32 = 0x9e37_79b9;

/// A hash of seed and index, so that lanes need not wait for each other.
#[inline(always)]
fn hash(seed: u64, spread_index: u32) -> u32 {
    let mut bits = (seed as u32).wrapping_add(spread_index) ^ (seed >> 32) as u32;
    bits = (bits ^ bits >> 16).wrapping_mul(0x21f0_aaad);
    bits = (bits ^ bits >> 15).wrapping_mul(0xd35a_2d97);
    bits ^ bits >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arithmetic that stands for the table, in both directions.
    #[test]
    fn codes_and_levels_are_those_of_the_table() {
        for (code, table) in LEVELS.into_iter().enumerate() {
            let levels = f32::from(table) - MIDDLE;
            assert_eq!((level(code as u8), from_middle(levels / 2.0) + 7.5), (table, code as f32));
        }
        for pair in LEVELS.windows(2) {
            let levels = f32::from(pair[0] + pair[1]) / 2.0 - MIDDLE;
            assert_eq!((from_middle(levels / 2.0) + 7.5).fract(), 0.5, "{pair:?}");
        }
        assert_eq!((from_middle(-99.0), from_middle(f32::INFINITY)), (-7.5, 7.5));
    }

    /// The ends are never passed, whatever is drawn; and in the middle of two codes either is as likely.
    #[test]
    fn draws_choose_between_the_codes_around() {
        for draw in [0, 0x7fff, 0x8000, 0xffff] {
            assert_eq!([code(-99.0, draw), code(-7.5, draw), code(7.5, draw), code(99.0, draw)], [0, 0, 15, 15]);
        }
        assert_eq!((0..1 << 16).map(|draw| code(0.0, draw) - 7).sum::<u32>(), 1 << 15);
    }
}
