//! Blocks with infinities or NaNs: words with two counters above the finite sum. Rare, so plain code for every type.
//!
//! A word is `positive * 2^(32-c) + negative * 2^(32-2c) + finite` modulo 2^32, and so is the sum of such words: the
//! finite part, which is negative at times and then borrows from the counters, is taken out first.

use crate::dtype::ReduceOp;
use crate::element::sealed::Sealed;
use crate::scale::Scale;

/// As `codec::encode`, for `scale.counter_bits > 0`.
pub(crate) fn encode<T: Sealed + Copy>(input: &[T], scale: Scale, vector: &mut [u8]) {
    let c = scale.counter_bits;
    let (positive, negative) = (1u32 << (32 - c), 1u32 << (32 - 2 * c));
    let f = 1.0 / scale.unit();
    for (x, word) in input.iter().zip(vector.as_chunks_mut().0) {
        let x = x.to_f64();
        *word = match x {
            _ if x.is_nan() => positive.wrapping_add(negative),
            f64::INFINITY => positive,
            f64::NEG_INFINITY => negative,
            _ => (x * f).round_ties_even() as i32 as u32,
        }
        .to_be_bytes();
    }
}

/// As `codec::decode`, for `scale.counter_bits > 0`.
pub(crate) fn decode<T: Sealed>(vector: &[u8], scale: Scale, op: ReduceOp, output: &mut [T]) {
    let c = scale.counter_bits;
    let divisor = if op == ReduceOp::Avg { f64::from(scale.world) } else { 1.0 };
    for (x, word) in output.iter_mut().zip(vector.as_chunks().0) {
        let word = u32::from_be_bytes(*word);
        let finite = ((word << (2 * c)) as i32) >> (2 * c);
        let counters = word.wrapping_sub(finite as u32) >> (32 - 2 * c);
        let (positive, negative) = (counters >> c, counters & ((1 << c) - 1));
        *x = T::from_f64(match (positive, negative) {
            (0, 0) => f64::from(finite) * scale.unit() / divisor,
            (_, 0) => f64::INFINITY,
            (0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        });
    }
}
