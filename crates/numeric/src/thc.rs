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

use crate::dtype::ReduceOp;
use crate::splitmix::splitmix64;

/// The most elements of a block.
pub const MAX_BLOCK: usize = 1024;

/// The integers that stand for the 16 codes: for normal numbers that are clipped at [`CLIP`], these err least of all that
/// are symmetrical and end at [`GRANULARITY`].
pub const LEVELS: [u8; 16] = [0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30];

/// The last level: 8 ranks' sums fit 8 bits, 2,184 ranks' 16.
pub const GRANULARITY: u8 = LEVELS[15];

/// Where rotated elements are clipped, in units of their standard deviation: one of 32 normal numbers lies beyond.
pub const CLIP: f32 = 2.153_874_7;

/// The steps of a norm from one power of two to the next.
const STEPS: i32 = 64;

/// `2^(1/64)`, and its square, and so on up to `2^(1/2)`.
const ROOTS: [f64; 6] = [
    1.010_889_286_051_700_5,
    1.021_897_148_654_116_6,
    1.044_273_782_427_413_8,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    std::f64::consts::SQRT_2,
];

/// A block's Euclidean norm on one rank, or the largest one on all ranks: `2^(steps / 64)`, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Norm(i16);

impl Norm {
    /// A block of zeros, or an empty block: the neutral element of `max`.
    pub const ZERO: Norm = Norm(i16::MIN);

    /// The norm of a block of finite elements.
    pub fn of(block: &[f32]) -> Norm {
        // Eight sums side by side, so that vector registers add in the same order.
        let mut squares = [0f64; 8];
        let (whole, rest) = block.as_chunks::<8>();
        for chunk in whole {
            for (sum, x) in squares.iter_mut().zip(chunk) {
                *sum += f64::from(*x) * f64::from(*x);
            }
        }
        let rest: f64 = rest.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let norm = (squares.iter().sum::<f64>() + rest).sqrt();
        if norm == 0.0 {
            return Norm::ZERO;
        }
        let mut steps = (norm.log2() * f64::from(STEPS)).floor() as i16;
        while Norm(steps).value() < norm {
            steps += 1;
        }
        Norm(steps)
    }

    /// The exponent of the power of two below it, and the rest of it, at least 1 and less than 2.
    fn split(self) -> (i32, f64) {
        let steps = i32::from(self.0).rem_euclid(STEPS);
        let bits = ROOTS.iter().enumerate().filter(|(bit, _)| steps >> bit & 1 == 1);
        (i32::from(self.0).div_euclid(STEPS), bits.map(|(_, root)| root).product())
    }

    fn value(self) -> f64 {
        let (exponent, rest) = self.split();
        rest * 2f64.powi(exponent)
    }
}

/// What ranks have agreed on for one block.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// Draws the signs; another one for each block of a job.
    pub seed: u64,
    /// The largest norm of all ranks.
    pub norm: Norm,
    /// How many ranks there are.
    pub world_size: u16,
}

impl Shared {
    /// From an element that was multiplied by `2^-exponent` and rotated to units of a level, from the middle one.
    fn levels_per_unit(&self) -> f32 {
        (f64::from(GRANULARITY) / 2.0 / (f64::from(CLIP) * self.norm.split().1)) as f32
    }

    /// `2^exponent` as two factors of binary32, since one may have no such power.
    fn power(&self, sign: i32) -> [f32; 2] {
        let exponent = sign * self.norm.split().0;
        let first = exponent.clamp(-126, 127);
        [2f32.powi(first), 2f32.powi((exponent - first).clamp(-126, 127))]
    }
}

/// The elements of a whole block of at least `elements`: a power of two, and an even number of codes.
pub fn padded(elements: usize) -> usize {
    elements.next_power_of_two().max(2)
}

/// Bytes of the codes of a block: two codes in each.
pub fn codes_len(elements: usize) -> usize {
    padded(elements) / 2
}

/// The functions of one instruction set ([`Kernels::thc`](crate::kernels::Kernels)); they panic if lengths disagree.
pub struct ThcKernels {
    /// Writes the codes of a block of at most [`MAX_BLOCK`] finite elements: [`codes_len`] bytes. The number is a seed of
    /// rank and block for the rounding.
    pub encode: fn(&[f32], Shared, u64, &mut [u8]),
    /// What the codes of a block lack of its elements, for error feedback.
    pub loss: fn(&[f32], Shared, u64, &mut [f32]),
    /// The switch's part: adds the levels of codes to lanes, of which there are twice as many as bytes.
    pub add: fn(&mut [u16], &[u8]),
    /// The sum or the average of the ranks' blocks, from the sums of their levels.
    pub decode: fn(&[u16], Shared, ReduceOp, &mut [f32]),
}

#[inline(always)]
pub(crate) fn encode(input: &[f32], shared: Shared, rounding: u64, vector: &mut [u8]) {
    let (mut memory, mut codes) = ([0f32; MAX_BLOCK], [0u8; MAX_BLOCK]);
    let block = rotated(input, shared, &mut memory);
    let codes = &mut codes[..block.len()];
    quantise(block, shared, rounding, codes);
    let (low, high) = codes.split_at(block.len() / 2);
    assert_eq!(vector.len(), low.len(), "two codes to a byte");
    for ((byte, low), high) in vector.iter_mut().zip(low).zip(high) {
        *byte = low | high << 4;
    }
}

#[inline(always)]
pub(crate) fn loss(input: &[f32], shared: Shared, rounding: u64, loss: &mut [f32]) {
    let (mut memory, mut codes) = ([0f32; MAX_BLOCK], [0u8; MAX_BLOCK]);
    let block = rotated(input, shared, &mut memory);
    let codes = &mut codes[..block.len()];
    quantise(block, shared, rounding, codes);
    for (x, code) in block.iter_mut().zip(codes) {
        *x = f32::from(level(*code));
    }
    turn_back(block, Shared { world_size: 1, ..shared }, 1.0, loss);
    for (loss, x) in loss.iter_mut().zip(input) {
        *loss = x - *loss;
    }
}

#[inline(always)]
pub(crate) fn add(lanes: &mut [u16], codes: &[u8]) {
    assert_eq!(lanes.len(), 2 * codes.len(), "two codes to a byte");
    let (low, high) = lanes.split_at_mut(codes.len());
    for (lane, code) in low.iter_mut().zip(codes) {
        *lane += u16::from(level(code & 15));
    }
    for (lane, code) in high.iter_mut().zip(codes) {
        *lane += u16::from(level(code >> 4));
    }
}

#[inline(always)]
pub(crate) fn decode(lanes: &[u16], shared: Shared, op: ReduceOp, output: &mut [f32]) {
    let mut memory = [0f32; MAX_BLOCK];
    let block = &mut memory[..padded(output.len())];
    assert_eq!(lanes.len(), block.len(), "a lane for each element of a whole block");
    for (x, sum) in block.iter_mut().zip(lanes) {
        *x = f32::from(*sum);
    }
    let divisor = if op == ReduceOp::Avg { f32::from(shared.world_size) } else { 1.0 };
    turn_back(block, shared, divisor, output);
}

/// The level of a code, by its distances from the levels below: faster in vector registers than to look it up.
#[inline(always)]
fn level(code: u8) -> u8 {
    (1..16).map(|at| if code >= at { LEVELS[usize::from(at)] - LEVELS[usize::from(at) - 1] } else { 0 }).sum()
}

/// The rotated block, scaled to a norm below 2 and padded with zeros; its elements are not divided by the root of their
/// number, so that they have the block's norm as their standard deviation.
#[inline(always)]
fn rotated<'a>(input: &[f32], shared: Shared, memory: &'a mut [f32; MAX_BLOCK]) -> &'a mut [f32] {
    let [first, second] = shared.power(-1);
    let block = &mut memory[..padded(input.len())];
    for (to, x) in block.iter_mut().zip(input) {
        *to = x * first * second;
    }
    flip_signs(block, shared.seed);
    transform(block);
    block
}

/// Gives each rotated element its code: one of the two levels around it, the nearer one more probably, so that the error
/// is zero on average. A code is the number of levels that a draw has passed.
#[inline(always)]
fn quantise(block: &[f32], shared: Shared, rounding: u64, codes: &mut [u8]) {
    let (scale, middle) = (shared.levels_per_unit(), f32::from(GRANULARITY) / 2.0);
    for (at, (x, code)) in block.iter().zip(codes).enumerate() {
        let (level, draw) = (x * scale + middle, draw(rounding, at as u32));
        let passed = LEVELS.windows(2).map(|pair| {
            let (from, to) = (f32::from(pair[0]), f32::from(pair[1]));
            u32::from(level > from + draw * (to - from))
        });
        *code = passed.sum::<u32>() as u8;
    }
}

/// From sums of levels to elements: `block` is overwritten.
#[inline(always)]
fn turn_back(block: &mut [f32], shared: Shared, divisor: f32, output: &mut [f32]) {
    // The middle level stands for 0.
    let zero = f32::from(GRANULARITY) / 2.0 * f32::from(shared.world_size);
    // The transform is its own inverse, except for the number of elements: a power of two.
    let unit = 1.0 / (shared.levels_per_unit() * divisor * block.len() as f32);
    for x in block.iter_mut() {
        *x = (*x - zero) * unit;
    }
    transform(block);
    flip_signs(block, shared.seed);
    let [first, second] = shared.power(1);
    for (to, x) in output.iter_mut().zip(block) {
        *to = *x * first * second;
    }
}

/// The Hadamard transform without its factor.
#[inline(always)]
fn transform(block: &mut [f32]) {
    let mut half = 1;
    while half < block.len() {
        for pair in block.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

/// Half of the elements, drawn by the seed, change their signs.
#[inline(always)]
fn flip_signs(block: &mut [f32], seed: u64) {
    for (word, run) in block.chunks_mut(64).enumerate() {
        let signs = splitmix64(seed.wrapping_add((word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for (bit, x) in run.iter_mut().enumerate() {
            *x = f32::from_bits(x.to_bits() ^ ((signs >> bit & 1) as u32) << 31);
        }
    }
}

/// A number of 24 bits, at least 0 and less than 1: a hash of seed and index, so that lanes need not wait for each other.
#[inline(always)]
fn draw(seed: u64, index: u32) -> f32 {
    let mut bits = (seed as u32).wrapping_add(index.wrapping_mul(0x9e37_79b9)) ^ (seed >> 32) as u32;
    bits = (bits ^ bits >> 16).wrapping_mul(0x21f0_aaad);
    bits = (bits ^ bits >> 15).wrapping_mul(0xd35a_2d97);
    bits ^= bits >> 15;
    (bits >> 8) as f32 / (1 << 24) as f32
}
