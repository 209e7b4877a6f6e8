//! The kernels in plain Rust: right on any processor, and the definition of what the others must give.

use half::{bf16, f16};

use super::{ElementKernels, Kernels, Unscale};
use crate::element::sealed::Sealed;
use crate::element::{bf16_from_f32, bf16_to_f32};

pub(super) static KERNELS: Kernels = Kernels {
    name: "portable",
    store_be,
    add_be,
    load_be,
    f32: ElementKernels {
        max_abs: max_abs_f32,
        encode: encode::<f32>,
        decode: decode::<f32>,
        write: write_f32,
        read: read_f32,
        add: add_f32,
        add_in_place: add_in_place_f32,
        divide: divide_f32,
    },
    f16: ElementKernels {
        max_abs: max_abs_f16,
        encode: encode::<f16>,
        decode: decode::<f16>,
        write: write_f16,
        read: read_f16,
        add: add_f16,
        add_in_place: add_in_place_f16,
        divide,
    },
    bf16: ElementKernels {
        max_abs: max_abs_bf16,
        encode: encode::<bf16>,
        decode: decode::<bf16>,
        write: write_bf16,
        read: read_bf16,
        add: add_bf16,
        add_in_place: add_in_place_bf16,
        divide,
    },
    i32: ElementKernels {
        max_abs: |_| 0,
        encode: |input, _, vector| write_i32(input, vector),
        decode: decode_i32,
        write: write_i32,
        read: read_i32,
        add: add_i32,
        add_in_place: add_in_place_i32,
        divide: divide_i32,
    },
};

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
    f16::from_bits(max).to_f32().to_bits()
}

#[inline(always)]
pub(super) fn max_abs_bf16(input: &[bf16]) -> u32 {
    let max = input.iter().fold(0, |max, x| max.max(x.to_bits() & 0x7fff));
    u32::from(max) << 16
}

/// Adding 1.5 * 2^52 leaves binary64 no bits for a fraction: the sum is rounded to nearest even, and its low bits are
/// the integer in two's complement. The scaled element is at most 2^30: that is what the agreed exponent is for.
#[inline(always)]
fn quantise(x: f64, factors: [f32; 2]) -> [u8; 4] {
    const ROUND: f64 = 1.5 * (1u64 << 52) as f64;
    let scaled = x * (f64::from(factors[0]) * f64::from(factors[1]));
    ((scaled + ROUND).to_bits() as u32).to_be_bytes()
}

#[inline(always)]
fn encode<T: Sealed + Copy>(input: &[T], factors: [f32; 2], vector: &mut [u8]) {
    for (x, word) in input.iter().zip(vector.as_chunks_mut().0) {
        *word = quantise(x.to_f64(), factors);
    }
}

/// Scaling by `unit` is exact. The quotient of 31 bits by 10 is never so near to a tie of a narrower type, without being
/// one, that binary64's own rounding would move it there: the only rounding that counts is the last.
#[inline(always)]
pub(super) fn decode<T: Sealed>(vector: &[u8], unscale: Unscale, output: &mut [T]) {
    for (x, word) in output.iter_mut().zip(vector.as_chunks().0) {
        *x = T::from_f64(f64::from(i32::from_be_bytes(*word)) * unscale.unit / unscale.divisor);
    }
}

/// Integers take part as they are; the quotient truncates towards zero.
#[inline(always)]
pub(super) fn decode_i32(vector: &[u8], unscale: Unscale, output: &mut [i32]) {
    if unscale.divisor == 1.0 {
        return read_i32(vector, output);
    }
    decode(vector, unscale, output);
}

/// By a number of ranks: as in [`decode`], the only rounding that counts is the last.
#[inline(always)]
fn divide<T: Sealed + Copy>(data: &mut [T], divisor: f64) {
    for x in data {
        *x = T::from_f64(x.to_f64() / divisor);
    }
}

#[inline(always)]
pub(super) fn divide_f32(data: &mut [f32], divisor: f64) {
    divide(data, divisor);
}

#[inline(always)]
pub(super) fn divide_i32(data: &mut [i32], divisor: f64) {
    divide(data, divisor);
}

macro_rules! native {
    ($type:ty, $sum:expr, $write:ident, $read:ident, $add:ident, $add_in_place:ident) => {
        #[inline(always)]
        pub(super) fn $write(input: &[$type], bytes: &mut [u8]) {
            for (x, bytes) in input.iter().zip(bytes.as_chunks_mut().0) {
                *bytes = x.to_be_bytes();
            }
        }

        #[inline(always)]
        pub(super) fn $read(bytes: &[u8], output: &mut [$type]) {
            for (x, bytes) in output.iter_mut().zip(bytes.as_chunks().0) {
                *x = <$type>::from_be_bytes(*bytes);
            }
        }

        #[inline(always)]
        pub(super) fn $add(input: &[$type], bytes: &[u8], output: &mut [$type]) {
            for ((sum, x), bytes) in output.iter_mut().zip(input).zip(bytes.as_chunks().0) {
                *sum = $sum(*x, <$type>::from_be_bytes(*bytes));
            }
        }

        #[inline(always)]
        pub(super) fn $add_in_place(data: &mut [$type], bytes: &[u8]) {
            for (x, bytes) in data.iter_mut().zip(bytes.as_chunks().0) {
                *x = $sum(*x, <$type>::from_be_bytes(*bytes));
            }
        }
    };
}

native!(f32, |a: f32, b: f32| a + b, write_f32, read_f32, add_f32, add_in_place_f32);
native!(f16, |a: f16, b: f16| f16::from_f32(a.to_f32() + b.to_f32()), write_f16, read_f16, add_f16, add_in_place_f16);
native!(
    bf16,
    |a: bf16, b: bf16| bf16_from_f32(bf16_to_f32(a) + bf16_to_f32(b)),
    write_bf16,
    read_bf16,
    add_bf16,
    add_in_place_bf16
);
native!(i32, i32::wrapping_add, write_i32, read_i32, add_i32, add_in_place_i32);
