//! Elements to packets and back: as fixed point for sums in the network, in their own type for sums at hosts.
//!
//! Every function panics if lengths disagree: 4 bytes an element for vectors, `T::DTYPE.size()` for native bytes.

use crate::dtype::ReduceOp;
use crate::element::Element;
use crate::kernels::{self, ElementKernels, Unscale};
use crate::non_finite;
use crate::prefetch;
use crate::scale::{BlockExponent, Scale};

/// Bits of binary32's infinity; larger magnitudes are NaNs.
const INFINITY_BITS: u32 = 0x7f80_0000;

/// The magnitude of a block; [`BlockExponent::ZERO`] for integers, which need no scale.
pub fn exponent<T: Element>(input: &[T]) -> BlockExponent {
    prefetch::behind(input);
    let max = (kernels::<T>().max_abs)(input);
    if max < INFINITY_BITS {
        return BlockExponent::of_magnitude(max);
    }
    let finite = input.iter().map(|x| x.to_f64().abs()).filter(|x| x.is_finite()).fold(0.0, f64::max);
    BlockExponent { non_finite: true, ..BlockExponent::of_magnitude((finite as f32).to_bits()) }
}

/// Writes a block as big-endian 32-bit fixed point: `round(x * f)`, ties to even. Integers go as they are.
///
/// `scale` comes from an exponent that is no smaller than the block's; with another the words mean nothing.
pub fn encode<T: Element>(input: &[T], scale: Scale, vector: &mut [u8]) {
    assert_eq!(vector.len(), 4 * input.len(), "a vector has 4 bytes for each element");
    if scale.counter_bits > 0 && T::DTYPE.is_float() {
        return non_finite::encode(input, scale, vector);
    }
    prefetch::behind(input);
    (kernels::<T>().encode)(input, scale.factors(), vector)
}

/// Reads a vector that is the sum of `scale.world` encoded ones. One rounding to nearest even; what is too large for
/// `T` becomes an infinity. Zeros come out positive.
pub fn decode<T: Element>(vector: &[u8], scale: Scale, op: ReduceOp, output: &mut [T]) {
    assert_eq!(vector.len(), 4 * output.len(), "a vector has 4 bytes for each element");
    if scale.counter_bits > 0 && T::DTYPE.is_float() {
        return non_finite::decode(vector, scale, op, output);
    }
    let divisor = if op == ReduceOp::Avg { f64::from(scale.world) } else { 1.0 };
    let unscale = match T::DTYPE.is_float() {
        false => Unscale { unit: 1.0, divisor },
        // Powers of two divide exactly, with the unit.
        true if scale.world.is_power_of_two() => Unscale { unit: scale.unit() / divisor, divisor: 1.0 },
        true => Unscale { unit: scale.unit(), divisor },
    };
    prefetch::behind_to_write(output);
    (kernels::<T>().decode)(vector, unscale, output)
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

/// `output <- input + bytes`; 16-bit floats are added in binary32 and rounded once, integers wrap.
pub fn accumulate_native<T: Element>(input: &[T], bytes: &[u8], output: &mut [T]) {
    check_native(input, bytes);
    check_native(output, bytes);
    prefetch::behind(input);
    prefetch::behind_to_write(output);
    (kernels::<T>().add)(input, bytes, output)
}

/// `data <- data + bytes`, as [`accumulate_native`].
pub fn accumulate_native_in_place<T: Element>(data: &mut [T], bytes: &[u8]) {
    check_native(data, bytes);
    prefetch::behind_to_write(data);
    (kernels::<T>().add_in_place)(data, bytes)
}

/// `data <- data / world`, rounded once; integers truncate towards zero.
pub fn divide<T: Element>(data: &mut [T], world: u16) {
    (kernels::<T>().divide)(data, f64::from(world))
}

fn kernels<T: Element>() -> &'static ElementKernels<T> {
    T::kernels(kernels::best())
}

fn check_native<T: Element>(elements: &[T], bytes: &[u8]) {
    assert_eq!(bytes.len(), T::DTYPE.size() * elements.len(), "native bytes are as many as the elements' own");
}
