//! An allreduce without a network, and tensors that are hard on it.

use proptest::collection::vec;
use proptest::prelude::*;
use tributary_numeric::{BlockExponent, DType, Element, ReduceOp, Scale, codec, lanes};

/// One block through exponent, encode, the switch's sum and decode.
pub fn allreduce<T: Element>(ranks: &[Vec<T>], op: ReduceOp) -> (Vec<T>, Scale) {
    let world = ranks.len() as u16;
    let block = ranks.iter().fold(BlockExponent::ZERO, |block, rank| block.join(codec::exponent(rank)));
    let scale = if T::DTYPE == DType::I32 { Scale::integer(world) } else { Scale::new(block, world) };
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
#[allow(dead_code, reason = "each test binary compiles this file and uses its own part")]
pub fn pairs(limit: usize, count: usize) -> impl Strategy<Value = Vec<(usize, usize)>> {
    vec((0..limit, 0..limit), 0..count)
}
