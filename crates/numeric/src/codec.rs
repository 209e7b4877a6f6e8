//! Elements to packets and back: as fixed point for sums in the network, in their own type for sums of native elements.
//!
//! Every function panics if lengths disagree: vectors have 4 bytes an element (fewer as codes: [`Scale::sent_len`]),
//! native bytes `T::DTYPE.size()`. Every function panics if its arguments have no meaning: fixed point without [`has_fixed_point`], or an operator that does
//! not [take](ReduceOp::takes) the type. Code that accepts a collective checks these two first.

use crate::dtype::{ReduceOp, has_fixed_point};
use crate::element::Element;
use crate::kernels::{self, ElementKernels, FixedKernels, Fold, Unscale};
use crate::prefetch;
use crate::scale::{BlockExponent, CodeWidth, Codes, Scale};

/// Bits of binary32's infinity; larger magnitudes are NaNs.
const INFINITY_BITS: u32 = 0x7f80_0000;

/// The exponent of a block; [`BlockExponent::ZERO`] for integers, which need no scale.
pub fn exponent<T: Element>(input: &[T]) -> BlockExponent {
    prefetch::behind(input);
    let max = (fixed::<T>(ReduceOp::Sum).max_abs)(input);
    if max < INFINITY_BITS {
        return BlockExponent::of_magnitude(max);
    }
    let finite = (fixed::<T>(ReduceOp::Sum).largest_finite)(input);
    BlockExponent { non_finite: true, ..BlockExponent::of_magnitude(finite.to_bits()) }
}

/// The norm of a block of rotated codes, of at most [`crate::thc::MAX_BLOCK`] floats; see [`BlockExponent`].
pub fn norm<T: Element>(input: &[T]) -> BlockExponent {
    prefetch::behind(input);
    (fixed::<T>(ReduceOp::Sum).norm)(input)
}

/// Writes a block as the scale says: as big-endian 32-bit fixed point or codes of 8 bits, `round(x * f)`, ties to even; or
/// as rotated codes of 4 bits. Integers go as they are.
///
/// `scale` must come from an exponent that is no smaller than the block's; otherwise the words mean nothing.
pub fn encode<T: Element>(input: &[T], scale: Scale, vector: &mut [u8]) {
    assert_eq!(vector.len(), scale.sent_len(input.len()), "a vector has the length that its scale says");
    if let Some(codes) = scale.codes {
        prefetch::behind(input);
        let fixed = fixed::<T>(ReduceOp::Sum);
        return match codes {
            Codes::Linear(_) => (fixed.encode_codes)(input, scale.code_factor(), vector),
            Codes::Rotated(_) => (fixed.encode_rotated)(input, scale, vector),
        };
    }
    if scale.counter_bits > 0 && T::DTYPE.is_float() {
        return (fixed::<T>(ReduceOp::Sum).encode_counted)(input, scale, vector);
    }
    prefetch::behind(input);
    (fixed::<T>(ReduceOp::Sum).encode)(input, scale.factors(), vector)
}

/// [`encode`], and what the vector lacks of the elements, rounded to their type, for error feedback: a rank adds it to what
/// it brings next. Only codes lose anything worth that; the loss of words is 0, and so is that of an element that is not
/// finite.
pub fn encode_with_loss<T: Element>(input: &[T], scale: Scale, vector: &mut [u8], loss: &mut [T]) {
    assert_eq!(input.len(), loss.len(), "each element has a loss");
    let fixed = fixed::<T>(ReduceOp::Sum);
    if let Some(Codes::Rotated(_)) = scale.codes {
        assert_eq!(vector.len(), scale.sent_len(input.len()), "a vector has the length that its scale says");
        prefetch::behind(input);
        prefetch::behind_to_write(loss);
        return (fixed.encode_rotated_with_loss)(input, scale, vector, loss);
    }
    encode(input, scale, vector);
    match scale.codes {
        Some(_) => (fixed.loss_of_codes)(input, scale.code_factor(), loss),
        None => loss.fill(T::default()),
    }
}

/// Reads a vector that is the sum of `scale.world_size` encoded vectors. Rounds once, to nearest even; values too large for
/// `T` become infinities. Zeros come out positive.
pub fn decode<T: Element>(vector: &[u8], scale: Scale, op: ReduceOp, output: &mut [T]) {
    assert_eq!(vector.len(), scale.result_len(output.len()), "a vector has the length that its scale says");
    let fixed = fixed::<T>(op);
    if let Some(codes) = scale.codes {
        prefetch::behind_to_write(output);
        return match codes {
            Codes::Linear(CodeWidth::Eight) => (fixed.decode_codes_8)(vector, scale.unscale_codes(op), output),
            Codes::Linear(CodeWidth::Sixteen) => (fixed.decode_codes_16)(vector, scale.unscale_codes(op), output),
            Codes::Rotated(_) => (fixed.decode_rotated)(vector, scale, op, output),
        };
    }
    if scale.counter_bits > 0 && T::DTYPE.is_float() {
        return (fixed.decode_counted)(vector, scale, op, output);
    }
    let unscale = match T::DTYPE.is_float() {
        false => Unscale { unit: 1.0, divisor: scale.divisor(op) },
        true => Unscale::of(scale, op),
    };
    prefetch::behind_to_write(output);
    (fixed.decode)(vector, unscale, output)
}

/// `bytes <- input`, big-endian.
pub fn write_native<T: Element>(input: &[T], bytes: &mut [u8]) {
    check_native(input, bytes);
    prefetch::behind(input);
    (kernels::<T>().write)(input, bytes)
}

/// `output <- bytes`, big-endian.
pub fn read_native<T: Element>(bytes: &[u8], output: &mut [T]) {
    check_native(output, bytes);
    prefetch::behind_to_write(output);
    (kernels::<T>().read)(bytes, output)
}

/// `output <- input o bytes`. 16-bit floats are combined in binary32 and rounded once; integers wrap. An average is a
/// sum, which [`divide`] then divides.
pub fn accumulate_native<T: Element>(op: ReduceOp, input: &[T], bytes: &[u8], output: &mut [T]) {
    check_native(input, bytes);
    check_native(output, bytes);
    prefetch::behind(input);
    prefetch::behind_to_write(output);
    (fold::<T>(op).out_of_place)(input, bytes, output)
}

/// `data <- data o bytes`, as [`accumulate_native`].
pub fn accumulate_native_in_place<T: Element>(op: ReduceOp, data: &mut [T], bytes: &[u8]) {
    check_native(data, bytes);
    prefetch::behind_to_write(data);
    (fold::<T>(op).in_place)(data, bytes)
}

/// `data <- data / world_size`, rounded once; integers truncate towards zero. `world_size` is at least 1. For 16-bit floats of
/// more than 8,192 ranks see `docs/numerics.md`.
pub fn divide<T: Element>(data: &mut [T], world_size: u16) {
    (kernels::<T>().divide)(data, world_size)
}

fn kernels<T: Element>() -> &'static ElementKernels<T> {
    T::kernels(kernels::best())
}

fn fixed<T: Element>(op: ReduceOp) -> &'static FixedKernels<T> {
    match &kernels::<T>().fixed {
        Some(fixed) if has_fixed_point(T::DTYPE, op) => fixed,
        _ => panic!("{op} of {} does not travel as fixed point", T::DTYPE),
    }
}

fn fold<T: Element>(op: ReduceOp) -> &'static Fold<T> {
    let fold = kernels::<T>().folds.of(op);
    fold.unwrap_or_else(|| panic!("{op} has no meaning for {}", T::DTYPE))
}

fn check_native<T: Element>(elements: &[T], bytes: &[u8]) {
    assert_eq!(bytes.len(), T::DTYPE.size() * elements.len(), "native bytes are as many as the elements' own");
}
