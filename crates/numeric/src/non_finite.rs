//! Blocks with infinities or NaNs: words with counters above the finite sum. Such blocks are rare, so one plain code
//! serves all types.
//!
//! A word is `positive * 2^(32-c) + negative * 2^(32-2c) + finite` modulo 2^32, and so is the sum of such words.
//! Decoding takes the finite part out first: it may be negative, and then borrows from the counters. Where two counters
//! would leave too little room, a word is `not_finite * 2^(32-c) + finite`.

use crate::dtype::ReduceOp;
use crate::number::FixedPoint;
use crate::scale::Scale;

/// The largest magnitude of the finite elements, in a block with others too.
pub(crate) fn largest_finite<T: FixedPoint>(input: &[T]) -> f32 {
    input.iter().map(|x| x.to_f64().abs()).filter(|x| x.is_finite()).fold(0.0, f64::max) as f32
}

/// Like `codec::encode`, for `scale.counter_bits > 0`.
pub(crate) fn encode<T: FixedPoint>(input: &[T], scale: Scale, vector: &mut [u8]) {
    for (x, word) in input.iter().zip(vector.as_chunks_mut().0) {
        *word = word_of(x.to_f64(), scale).to_be_bytes();
    }
}

/// Like `codec::decode`, for `scale.counter_bits > 0`.
pub(crate) fn decode<T: FixedPoint>(vector: &[u8], scale: Scale, op: ReduceOp, output: &mut [T]) {
    let divisor = scale.divisor(op);
    for (x, word) in output.iter_mut().zip(vector.as_chunks().0) {
        *x = T::from_f64(value_of(u32::from_be_bytes(*word), scale, divisor));
    }
}

/// One element's word.
pub(crate) fn word_of(x: f64, scale: Scale) -> u32 {
    let c = scale.counter_bits;
    let one = 1u32 << (32 - c);
    let (positive, negative, both) = match scale.keeps_signs() {
        true => (one, one >> c, one + (one >> c)),
        false => (one, one, one),
    };
    match x {
        _ if x.is_nan() => both,
        f64::INFINITY => positive,
        f64::NEG_INFINITY => negative,
        _ => (x * (1.0 / scale.unit())).round_ties_even() as i32 as u32,
    }
}

/// The value of the sum of such words.
pub(crate) fn value_of(word: u32, scale: Scale, divisor: f64) -> f64 {
    let (c, counter_bits) = (scale.counter_bits, scale.bits_of_counters());
    let finite = ((word << counter_bits) as i32) >> counter_bits;
    let counters = word.wrapping_sub(finite as u32) >> (32 - counter_bits);
    let (positive, negative) = match scale.keeps_signs() {
        true => (counters >> c, counters & ((1 << c) - 1)),
        false => (counters, counters),
    };
    match (positive, negative) {
        (0, 0) => f64::from(finite) * scale.unit() / divisor,
        (_, 0) => f64::INFINITY,
        (0, _) => f64::NEG_INFINITY,
        _ => f64::NAN,
    }
}
