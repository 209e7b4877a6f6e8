//! The loops in plain Rust. They run on any processor, and define the results of all other tables.

use half::{bf16, f16};

use super::Unscale;
use crate::codes::{Code, CodeSum};
use crate::dtype::ReduceOp;
use crate::non_finite;
use crate::number::{FixedPoint, Lane, Number};
use crate::operator::Operator;
use crate::scale::{BlockExponent, Scale};
use crate::thc::{self, Near};

#[inline(always)]
pub(super) fn store_be(lanes: &mut [u32], vector: &[u8]) {
    for (lane, bytes) in lanes.iter_mut().zip(vector.as_chunks().0) {
        *lane = u32::from_be_bytes(*bytes);
    }
}

#[inline(always)]
pub(super) fn add_be(lanes: &mut [u32], vector: &[u8]) {
    for (lane, bytes) in lanes.iter_mut().zip(vector.as_chunks().0) {
        *lane = lane.wrapping_add(u32::from_be_bytes(*bytes));
    }
}

#[inline(always)]
pub(super) fn load_be(lanes: &[u32], vector: &mut [u8]) {
    for (lane, bytes) in lanes.iter().zip(vector.as_chunks_mut().0) {
        *bytes = lane.to_be_bytes();
    }
}

#[inline(always)]
pub(super) fn max_abs_f32(input: &[f32]) -> u32 {
    input.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff_ffff))
}

#[inline(always)]
pub(super) fn max_abs_f16(input: &[f16]) -> u32 {
    let max = input.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff));
    f16::from_bits(max).widen().to_bits()
}

#[inline(always)]
pub(super) fn max_abs_bf16(input: &[bf16]) -> u32 {
    let max = input.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff));
    u32::from(max) << 16
}

/// Adding 1.5 * 2^52 leaves binary64 no bits for a fraction: the sum is rounded to nearest even, and its low bits are
/// the integer in two's complement. The agreed exponent bounds the scaled element by 2^30.
#[inline(always)]
pub(super) fn quantise(x: f64, factors: [f32; 2]) -> u32 {
    const ROUND: f64 = 1.5 * (1u64 << 52) as f64;
    let scaled = x * (f64::from(factors[0]) * f64::from(factors[1]));
    (scaled + ROUND).to_bits() as u32
}

#[inline(always)]
pub(super) fn encode<T: FixedPoint>(input: &[T], factors: [f32; 2], vector: &mut [u8]) {
    for (x, word) in input.iter().zip(vector.as_chunks_mut().0) {
        *word = quantise(x.to_f64(), factors).to_be_bytes();
    }
}

/// Scaling by `unit` is exact. The quotient of 31 bits by 15 is a tie of a narrower type, or so far from any tie that
/// binary64's own rounding does not reach it: only the last rounding counts.
#[inline(always)]
pub(super) fn decode<T: FixedPoint>(vector: &[u8], unscale: Unscale, output: &mut [T]) {
    for (x, word) in output.iter_mut().zip(vector.as_chunks().0) {
        *x = T::from_f64(f64::from(i32::from_be_bytes(*word)) * unscale.unit / unscale.divisor);
    }
}

#[inline(always)]
pub(super) fn encode_codes<T: FixedPoint>(input: &[T], factor: f64, vector: &mut [u8]) {
    for (x, code) in input.iter().zip(Code::split_mut(vector)) {
        *code = Code::of(x.to_f64(), factor).to_be();
    }
}

/// What codes lack of their elements.
#[inline(always)]
pub(super) fn loss_of_codes<T: FixedPoint>(input: &[T], factor: f64, loss: &mut [T]) {
    for (x, loss) in input.iter().zip(loss) {
        *loss = T::from_f64(Code::of(x.to_f64(), factor).loss(x.to_f64(), factor));
    }
}

/// As in [`decode`], the quotient of 16 bits by 15 is a tie of a narrower type or far from any.
#[inline(always)]
pub(super) fn decode_codes<T: FixedPoint, C: Number<Lane = CodeSum>>(
    vector: &[u8],
    unscale: Unscale,
    output: &mut [T],
) {
    for (x, code) in output.iter_mut().zip(C::split(vector)) {
        *x = T::from_f64(C::from_be(*code).widen().value(unscale));
    }
}

/// An element as binary32, exactly.
#[inline(always)]
fn binary32<T: FixedPoint>(x: T) -> f32 {
    x.to_f64() as f32
}

#[inline(always)]
pub(super) fn norm<T: FixedPoint>(input: &[T]) -> BlockExponent {
    thc::norm(input, binary32)
}

#[inline(always)]
pub(super) fn encode_rotated<N: Near, T: FixedPoint>(input: &[T], scale: Scale, vector: &mut [u8]) {
    thc::encode::<N>(thc::block_of(input, binary32), input.len(), scale, vector);
}

#[inline(always)]
pub(super) fn encode_rotated_with_loss<N: Near, T: FixedPoint>(
    input: &[T],
    scale: Scale,
    vector: &mut [u8],
    loss: &mut [T],
) {
    let mut block = thc::block_of(input, binary32);
    thc::encode_with_loss::<N>(&mut block, input.iter().map(|x| binary32(*x)), scale, vector);
    loss.iter_mut().zip(block).for_each(|(to, x)| *to = T::from_f64(x.into()));
}

#[inline(always)]
pub(super) fn decode_rotated<N: Near, T: FixedPoint>(vector: &[u8], scale: Scale, op: ReduceOp, output: &mut [T]) {
    let (elements, mut memory) = (output.len(), [0f32; thc::MAX_BLOCK]);
    for (to, x) in output.iter_mut().zip(thc::decode::<N>(vector, scale, op, elements, &mut memory)) {
        *to = T::from_f64((*x).into());
    }
}

/// Integers are not scaled; the quotient truncates towards zero.
#[inline(always)]
pub(super) fn decode_i32(vector: &[u8], unscale: Unscale, output: &mut [i32]) {
    if unscale.divisor == 1.0 {
        return read(vector, output);
    }
    decode(vector, unscale, output);
}

#[inline(always)]
pub(super) fn write<T: Number>(input: &[T], bytes: &mut [u8]) {
    for (x, bytes) in input.iter().zip(T::split_mut(bytes)) {
        *bytes = x.to_be();
    }
}

#[inline(always)]
pub(super) fn read<T: Number>(bytes: &[u8], output: &mut [T]) {
    for (x, bytes) in output.iter_mut().zip(T::split(bytes)) {
        *x = T::from_be(*bytes);
    }
}

#[inline(always)]
pub(super) fn fold<T: Number, O: Operator<T::Lane>>(input: &[T], bytes: &[u8], output: &mut [T]) {
    for ((result, x), bytes) in output.iter_mut().zip(input).zip(T::split(bytes)) {
        *result = T::narrow(O::apply(x.widen(), T::from_be(*bytes).widen()));
    }
}

#[inline(always)]
pub(super) fn fold_in_place<T: Number, O: Operator<T::Lane>>(data: &mut [T], bytes: &[u8]) {
    for (x, bytes) in data.iter_mut().zip(T::split(bytes)) {
        *x = T::narrow(O::apply(x.widen(), T::from_be(*bytes).widen()));
    }
}

/// Two roundings give the result of one: for bf16 with any number of ranks, for f16 with up to 8,192 and with any even
/// number. `docs/numerics.md` says what holds for more.
///
/// Two roundings differ from one only if the first of them ends at a tie `t` of 16 bits and the quotient is not `t`. With
/// `p` the lane, `w` the ranks and 2^e the power of two at or below `t`, `p - t*w` is a multiple of `p`'s last place or of
/// `t`'s, whichever is smaller. If `p`'s is smaller, a quotient that is not `t` is at least that `/w` away from `t`, and
/// half a unit of the quotient's last place, 2^(e-24), is less. For bf16 this is always so, because a tie has 9 bits and
/// `w` is at most 2^14; for f16, whose ties have 12 bits, it is so with up to 2^12 ranks. If `t`'s last place is the
/// smaller, which is 2^(e-11) for f16, the quotient is at least 2^(e-11)/`w` away from `t`. That is more than 2^(e-24) if
/// `w` is below 2^13. An even `w` gives the quotient of `p/2` by `w/2`, and `p/2` is exact.
#[inline(always)]
pub(super) fn divide<T: Number>(data: &mut [T], ranks: u16) {
    for x in data {
        *x = T::narrow(x.widen().divided(ranks));
    }
}

/// Panics unless there are as many lanes as elements of `element` bytes in the vector.
#[inline(always)]
pub(super) fn check<L: Number>(lanes: &[u8], vector: &[u8], element: usize) {
    let (lane, lanes, vector) = (size_of::<L>(), lanes.len(), vector.len());
    assert!(
        lanes.is_multiple_of(lane) && lanes / lane * element == vector,
        "{lanes} bytes of lanes, {vector} of vector"
    );
}

#[inline(always)]
pub(super) fn store<T: Number>(lanes: &mut [u8], vector: &[u8]) {
    check::<T::Lane>(lanes, vector, size_of::<T>());
    for (lane, bytes) in T::Lane::split_mut(lanes).iter_mut().zip(T::split(vector)) {
        *lane = T::from_be(*bytes).widen().to_ne();
    }
}

#[inline(always)]
pub(super) fn add<T: Number, O: Operator<T::Lane>>(lanes: &mut [u8], vector: &[u8]) {
    check::<T::Lane>(lanes, vector, size_of::<T>());
    for (lane, bytes) in T::Lane::split_mut(lanes).iter_mut().zip(T::split(vector)) {
        *lane = O::apply(T::Lane::from_ne(*lane), T::from_be(*bytes).widen()).to_ne();
    }
}

#[inline(always)]
pub(super) fn load<T: Number>(lanes: &[u8], vector: &mut [u8]) {
    check::<T::Lane>(lanes, vector, size_of::<T>());
    for (lane, bytes) in T::Lane::split(lanes).iter().zip(T::split_mut(vector)) {
        *bytes = T::narrow(T::Lane::from_ne(*lane)).to_be();
    }
}

#[inline(always)]
pub(super) fn merge<L: Lane, O: Operator<L>>(lanes: &mut [u8], other: &[u8]) {
    check::<L>(lanes, other, size_of::<L>());
    for (lane, other) in L::split_mut(lanes).iter_mut().zip(L::split(other)) {
        *lane = O::apply(L::from_ne(*lane), L::from_ne(*other)).to_ne();
    }
}

#[inline(always)]
pub(super) fn finish<L: Lane>(lanes: &mut [u8], ranks: u16) {
    for lane in L::split_mut(lanes) {
        *lane = L::from_ne(*lane).divided(ranks).to_ne();
    }
}

#[inline(always)]
pub(super) fn store_fixed<T: FixedPoint>(lanes: &mut [u8], vector: &[u8], scale: Scale) {
    each_word::<T>(lanes, vector, scale, |_, word| word);
}

#[inline(always)]
pub(super) fn add_fixed<T: FixedPoint>(lanes: &mut [u8], vector: &[u8], scale: Scale) {
    each_word::<T>(lanes, vector, scale, |lane, word| u32::from_ne_bytes(lane).wrapping_add(word));
}

/// `lane <- combined(lane, word)` for each element in fixed point.
#[inline(always)]
fn each_word<T: FixedPoint>(lanes: &mut [u8], vector: &[u8], scale: Scale, combined: impl Fn([u8; 4], u32) -> u32) {
    check::<i32>(lanes, vector, size_of::<T>());
    let pairs = lanes.as_chunks_mut().0.iter_mut().zip(T::split(vector));
    if scale.counter_bits > 0 {
        for (lane, bytes) in pairs {
            *lane = combined(*lane, non_finite::word_of(T::from_be(*bytes).to_f64(), scale)).to_ne_bytes();
        }
    } else {
        let factors = scale.factors();
        for (lane, bytes) in pairs {
            *lane = combined(*lane, quantise(T::from_be(*bytes).to_f64(), factors)).to_ne_bytes();
        }
    }
}

#[inline(always)]
pub(super) fn load_fixed<T: FixedPoint>(lanes: &[u8], vector: &mut [u8], scale: Scale, op: ReduceOp) {
    check::<i32>(lanes, vector, size_of::<T>());
    let pairs = lanes.as_chunks().0.iter().zip(T::split_mut(vector));
    if scale.counter_bits > 0 {
        let divisor = scale.divisor(op);
        for (lane, bytes) in pairs {
            *bytes = T::from_f64(non_finite::value_of(u32::from_ne_bytes(*lane), scale, divisor)).to_be();
        }
    } else {
        let Unscale { unit, divisor } = Unscale::of(scale, op);
        for (lane, bytes) in pairs {
            *bytes = T::from_f64(f64::from(i32::from_ne_bytes(*lane)) * unit / divisor).to_be();
        }
    }
}
