//! An allreduce without a network, and tensors that are hard on it.
#![allow(dead_code, reason = "each test binary compiles this file and uses its own part")]

use proptest::collection::vec;
use proptest::prelude::*;
use tributary_numeric::{BlockExponent, DType, Element, ReduceOp, Scale, codec, lanes};

/// One block through exponent, encode, the switch's sum and decode.
pub fn allreduce<T: Element>(ranks: &[Vec<T>], op: ReduceOp) -> (Vec<T>, Scale) {
    let world_size = ranks.len() as u16;
    let block = ranks.iter().fold(BlockExponent::ZERO, |block, rank| block.join(codec::exponent(rank)));
    let scale = if T::DTYPE == DType::I32 { Scale::integer(world_size) } else { Scale::new(block, world_size) };
    let elements = ranks[0].len();
    let (mut sum, mut vector) = (vec![0; elements], vec![0; 4 * elements]);
    for rank in ranks {
        codec::encode(rank, scale, &mut vector);
        lanes::add_be(&mut sum, &vector);
    }
    lanes::load_be(&sum, &mut vector);
    let mut output = vec![T::default(); elements];
    codec::decode(&vector, scale, op, &mut output);
    (output, scale)
}

/// An element type that test data can be narrowed to.
pub trait FromBinary32: Element {
    /// The nearest value.
    fn from_binary32(x: f32) -> Self;
    /// It is neither an infinity nor a NaN.
    fn is_finite(self) -> bool;
}

macro_rules! from_binary32 {
    ($type:ty, $from:expr) => {
        impl FromBinary32 for $type {
            fn from_binary32(x: f32) -> Self {
                $from(x)
            }
            fn is_finite(self) -> bool {
                <$type>::is_finite(self)
            }
        }
    };
}

from_binary32!(f32, |x| x);
from_binary32!(tributary_numeric::f16, tributary_numeric::f16::from_f32);
from_binary32!(tributary_numeric::bf16, tributary_numeric::bf16::from_f32);

/// The inputs of 1 to 40 ranks for one block of finite elements: all of one magnitude, or heavy-tailed over the whole
/// range, with denormals, zeros of both signs and exact powers of two.
pub fn floats<T: FromBinary32>() -> impl Strategy<Value = Vec<Vec<T>>> {
    let anything = any::<u32>().prop_map(f32::from_bits);
    let ordinary = -1f32..1.0;
    let denormal = (0..1u32 << 23).prop_map(f32::from_bits);
    let small = (-1f32..1.0, -24..-10i32).prop_map(|(x, m)| x * 2f32.powi(m));
    let power =
        (-149..128i32, any::<bool>()).prop_map(|(m, minus)| 2f64.powi(m) as f32 * if minus { -1.0 } else { 1.0 });
    let special = prop_oneof![Just(0.0), Just(-0.0), Just(f32::MAX), Just(f32::MIN)];
    let one_kind = prop_oneof![
        block(ordinary.clone().boxed()),
        block(denormal.clone().boxed()),
        block(small.clone().boxed()),
        block(prop_oneof![anything.clone(), ordinary, denormal, small, power, special].boxed()),
        block(anything.boxed()),
    ];
    one_kind.prop_map(|ranks| {
        let narrow = |x: f32| Some(T::from_binary32(x)).filter(|x| x.is_finite()).unwrap_or_default();
        ranks.into_iter().map(|rank| rank.into_iter().map(narrow).collect()).collect()
    })
}

fn block(element: BoxedStrategy<f32>) -> impl Strategy<Value = Vec<Vec<f32>>> {
    (1usize..40, 1usize..24).prop_flat_map(move |(ranks, elements)| vec(vec(element.clone(), elements), ranks))
}

/// Up to `count` pairs of numbers below `limit`.
pub fn pairs(limit: usize, count: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    vec((0..limit, 0..limit), 0..count)
}

/// Elements as bits, so that NaNs are compared by their bits too.
pub trait AnyBits: Element {
    /// Patterns that arithmetic treats apart: zeros, infinities, NaNs quiet and signalling, denormals, the ends.
    const SPECIALS: &'static [u64];
    /// The type's low bits.
    fn from_bits64(bits: u64) -> Self;
    /// The bits.
    fn bits(self) -> u64;
    /// Itself, or a zero in place of an infinity or a NaN.
    fn or_zero(self) -> Self;
    /// As in a packet.
    fn be_bytes(self) -> Vec<u8> {
        let size = size_of::<Self>();
        self.bits().to_be_bytes()[8 - size..].to_vec()
    }

    /// Blocks of this many: any bits; magnitudes near each other; or specials among ordinary numbers.
    fn blocks(len: usize) -> BoxedStrategy<Vec<Self>> {
        let bits = 8 * size_of::<Self>() as u32;
        let anything = any::<u64>();
        let near = (any::<bool>(), 0..u64::MAX >> (64 - bits + 7))
            .prop_map(move |(minus, x)| (u64::from(minus) << (bits - 1)) | ((0x3f << (bits - 8)) + x));
        let special = (0..Self::SPECIALS.len()).prop_map(|at| Self::SPECIALS[at]);
        prop_oneof![
            vec(anything, len),
            vec(near.clone(), len),
            vec(prop_oneof![special.clone(), near], len),
            vec(special, len)
        ]
        .prop_map(|block| block.into_iter().map(Self::from_bits64).collect())
        .boxed()
    }
}

macro_rules! any_bits {
    (float $type:ty, $bits:ty, $fraction:literal) => {
        impl AnyBits for $type {
            const SPECIALS: &'static [u64] = {
                const SIGN: u64 = 1 << (8 * size_of::<$type>() - 1);
                const INFINITY: u64 = SIGN - (1 << $fraction);
                &[
                    0,
                    SIGN,
                    INFINITY,
                    SIGN | INFINITY,
                    // Quiet and signalling NaNs of both signs.
                    INFINITY | 1 << ($fraction - 1),
                    SIGN | INFINITY | 1 << ($fraction - 1) | 1,
                    INFINITY | 1,
                    SIGN - 1,
                    SIGN | INFINITY | 2,
                    // The ends of the denormals and of the normals.
                    1,
                    SIGN | 1,
                    (1 << $fraction) - 1,
                    1 << $fraction,
                    SIGN | 1 << $fraction,
                    INFINITY - 1,
                    SIGN | INFINITY - 1,
                ]
            };
            fn from_bits64(bits: u64) -> $type {
                <$type>::from_bits(bits as $bits)
            }
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
            fn or_zero(self) -> $type {
                if self.is_finite() { self } else { <$type>::default() }
            }
        }
    };
    (integer $type:ty, $bits:ty) => {
        impl AnyBits for $type {
            const SPECIALS: &'static [u64] =
                &[0, 1, u64::MAX, <$type>::MAX as u64, <$type>::MIN as u64, <$type>::MAX as u64 - 1];
            fn from_bits64(bits: u64) -> $type {
                bits as $type
            }
            fn bits(self) -> u64 {
                (self as $bits).into()
            }
            fn or_zero(self) -> $type {
                self
            }
        }
    };
}

any_bits!(float f32, u32, 23);
any_bits!(float f64, u64, 52);
any_bits!(float tributary_numeric::f16, u16, 10);
any_bits!(float tributary_numeric::bf16, u16, 7);
any_bits!(integer i8, u8);
any_bits!(integer i16, u16);
any_bits!(integer i32, u32);
any_bits!(integer i64, u64);
any_bits!(integer u8, u8);
