//! What accumulators give, for every encoding: docs/numerics.md, "Sums in a switch".

mod common;

use common::{AnyBits, FromBinary32, allreduce, floats, pairs};
use proptest::collection::vec;
use proptest::prelude::*;
use tributary_numeric::{
    BlockExponent, Combine, DType, Element, Lanes, ReduceOp, Scale, bf16, codec, f16, fixed, fixed_16, native,
};

fn packet<T: Element>(elements: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(elements)];
    codec::write_native(elements, &mut bytes);
    bytes
}

fn elements<T: Element>(packet: &[u8]) -> Vec<T> {
    let mut elements = vec![T::default(); packet.len() / size_of::<T>()];
    codec::read_native(packet, &mut elements);
    elements
}

fn lanes_for(combine: &Combine, elements: usize) -> Lanes {
    Lanes::zeroed(elements * combine.lane_size)
}

/// What one switch makes of the ranks' packets, in the order of the ranks.
fn at_a_switch<T: Element>(op: ReduceOp, ranks: &[Vec<T>]) -> Vec<T> {
    let combine = native(T::DTYPE, op).unwrap();
    let mut lanes = lanes_for(combine, ranks[0].len());
    (combine.store)(&mut lanes, &packet(&ranks[0]));
    for rank in &ranks[1..] {
        (combine.add)(&mut lanes, &packet(rank));
    }
    (combine.finish)(&mut lanes, ranks.len() as u16);
    let mut result = vec![0; size_of_val(ranks[0].as_slice())];
    (combine.load)(&lanes, &mut result);
    elements(&result)
}

#[test]
fn a_combine_exists_where_the_operator_has_a_meaning() {
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            let combine = native(dtype, op);
            assert_eq!(combine.is_some(), op.takes(dtype), "{op} of {dtype}");
            if let Some(combine) = combine {
                assert_eq!(combine.name, format!("{op} of {dtype}"));
                let lane = if dtype.is_float() { dtype.size().max(4) } else { dtype.size() };
                let sizes = (combine.wire_size, combine.lane_size, combine.partial_size);
                assert_eq!(sizes, (dtype.size(), lane, lane), "{combine:?}");
            }
        }
    }
    assert_eq!((fixed().wire_size, fixed().lane_size, fixed().partial_size), (4, 4, 4));
}

/// 1 + 2^-8 + 2^-8 in bf16: with one rounding at the end nothing is lost on the way.
#[test]
fn sixteen_bit_floats_are_widened_and_rounded_once() {
    let tiny = bf16::from_f32(2f32.powi(-8));
    let sum = at_a_switch(ReduceOp::Sum, &[vec![bf16::ONE], vec![tiny], vec![tiny]]);
    assert_eq!(sum, [bf16::from_f32(1.0 + 2f32.powi(-7))]);
    let product = at_a_switch(ReduceOp::Prod, &[vec![f16::MAX], vec![f16::MAX], vec![f16::from_f32(1e-5)]]);
    assert_eq!(product, [f16::from_f64(f64::from(f16::MAX).powi(2) * f64::from(f16::from_f32(1e-5)))]);
}

/// The sum of 1,000 numbers near the largest is too large for binary16; their average is not.
#[test]
fn averages_of_sixteen_bit_floats_do_not_overflow_on_their_way() {
    assert_eq!(at_a_switch(ReduceOp::Avg, &vec![vec![f16::MAX, f16::MIN]; 1000]), [f16::MAX, f16::MIN]);
    assert_eq!(at_a_switch(ReduceOp::Sum, &vec![vec![f16::MAX]; 2]), [f16::INFINITY]);
}

#[test]
fn only_averages_are_divided_at_the_end() {
    for dtype in DType::ALL {
        for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(dtype)) {
            let combine = native(dtype, op).unwrap();
            let mut lanes = vec![0x42; 64];
            (combine.finish)(&mut lanes, 3);
            assert_eq!(lanes == [0x42; 64], op != ReduceOp::Avg, "{op} of {dtype}");
        }
    }
    let mut lanes = [0x42; 64];
    (fixed().finish)(&mut lanes, 3);
    assert_eq!(lanes, [0x42; 64], "hosts divide what they decode");
}

#[test]
fn what_is_stored_alone_comes_out_as_it_went_in() {
    fn check<T: AnyBits>(canonical: Option<u64>) {
        let input: Vec<T> = T::SPECIALS.iter().map(|&bits| T::from_bits64(bits)).collect();
        for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(T::DTYPE)) {
            let combine = native(T::DTYPE, op).unwrap();
            let mut lanes = lanes_for(combine, input.len());
            (combine.store)(&mut lanes, &packet(&input));
            let mut result = packet(&input);
            result.fill(0xaa);
            (combine.load)(&lanes, &mut result);
            for (got, x) in elements::<T>(&result).iter().zip(&input) {
                // Narrowing to 16 bits is an operation.
                let expected = canonical.filter(|_| *x != *x).unwrap_or(x.bits());
                assert_eq!(got.bits(), expected, "{combine:?} of {x:?}");
            }
        }
    }
    check::<f32>(None);
    check::<f64>(None);
    check::<f16>(Some(0x7e00));
    check::<bf16>(Some(0x7fc0));
    check::<i8>(None);
    check::<i16>(None);
    check::<i32>(None);
    check::<i64>(None);
    check::<u8>(None);
}

#[test]
#[should_panic(expected = "bytes of lanes")]
fn lengths_must_agree() {
    let combine = native(DType::BF16, ReduceOp::Sum).unwrap();
    (combine.add)(&mut [0; 64], &[0; 30]);
}

/// Every rank's contribution through lanes, in every grouping that one accumulator and one partial sum make possible,
/// against the same combination of elements at hosts, where these two round alike: types that are their own lanes.
macro_rules! as_hosts_do {
    ($name:ident, $type:ty) => {
        proptest! {
            #[test]
            fn $name(ranks in (1usize..50, 1usize..6).prop_flat_map(|(n, world_size)| vec(<$type>::blocks(n), world_size))) {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(<$type>::DTYPE)) {
                    let mut at_host = ranks[0].clone();
                    for rank in &ranks[1..] {
                        codec::accumulate_native_in_place(op, &mut at_host, &packet(rank));
                    }
                    if op == ReduceOp::Avg {
                        codec::divide(&mut at_host, ranks.len() as u16);
                    }
                    prop_assert_eq!(packet(&at_a_switch(op, &ranks)), packet(&at_host), "{} of {}", op, <$type>::DTYPE);
                }
            }
        }
    };
}

as_hosts_do!(f32_as_hosts_do, f32);
as_hosts_do!(f64_as_hosts_do, f64);
as_hosts_do!(i8_as_hosts_do, i8);
as_hosts_do!(i16_as_hosts_do, i16);
as_hosts_do!(i32_as_hosts_do, i32);
as_hosts_do!(i64_as_hosts_do, i64);
as_hosts_do!(u8_as_hosts_do, u8);

/// A partial result between switches loses nothing: two switches below a third give what the third gives alone when it
/// merges two accumulators, and when it adds the lanes of one to the packets of the other.
macro_rules! partials_are_exact {
    ($name:ident, $type:ty) => {
        proptest! {
            #[test]
            fn $name(ranks in (1usize..50).prop_flat_map(|n| vec(<$type>::blocks(n), 4))) {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(<$type>::DTYPE)) {
                    let combine = native(<$type>::DTYPE, op).unwrap();
                    let n = ranks[0].len();
                    let pair = |left: usize| {
                        let mut lanes = lanes_for(combine, n);
                        (combine.store)(&mut lanes, &packet(&ranks[left]));
                        (combine.add)(&mut lanes, &packet(&ranks[left + 1]));
                        lanes
                    };
                    let partial = |lanes: &[u8]| {
                        let mut partial = vec![0; n * combine.partial_size];
                        (combine.load_partial)(lanes, &mut partial);
                        partial
                    };
                    let mut merged = pair(0);
                    (combine.merge)(&mut merged, &pair(2));
                    let mut parent = lanes_for(combine, n);
                    (combine.store_partial)(&mut parent, &partial(&pair(0)));
                    prop_assert_eq!(&*parent, &*pair(0));
                    (combine.add_partial)(&mut parent, &partial(&pair(2)));
                    prop_assert_eq!(&*parent, &*merged, "{:?}", combine);
                    let mut from_the_right = pair(2);
                    (combine.add_left_partial)(&mut from_the_right, &partial(&pair(0)));
                    prop_assert_eq!(&*from_the_right, &*merged, "{:?}", combine);
                }
            }
        }
    };
}

partials_are_exact!(f32_partials_are_exact, f32);
partials_are_exact!(f64_partials_are_exact, f64);
partials_are_exact!(f16_partials_are_exact, f16);
partials_are_exact!(bf16_partials_are_exact, bf16);
partials_are_exact!(i8_partials_are_exact, i8);
partials_are_exact!(i64_partials_are_exact, i64);
partials_are_exact!(u8_partials_are_exact, u8);

macro_rules! sixteen_bits {
    ($name:ident, $type:ty, $precision:literal, $smallest:expr) => {
        mod $name {
            use super::*;

            /// Unit roundoff, and the least distance between numbers.
            const U: f64 = 1.0 / (1u64 << $precision) as f64;
            const U_F32: f64 = 1.0 / (1u64 << 24) as f64;

            /// By trying: `half` rounds twice where the processor has only the way over binary32.
            fn nearest(x: f64) -> $type {
                let near = <$type>::from_f32(x as f32);
                let candidates = [near.to_bits().wrapping_sub(1), near.to_bits(), near.to_bits() + 1];
                let finite = candidates.map(<$type>::from_bits).into_iter().filter(|c| c.is_finite());
                let distance = |c: $type| (f64::from(c) - x).abs();
                let best = finite
                    .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a.to_bits() & 1).cmp(&(b.to_bits() & 1))));
                // From half a step beyond the greatest number on, the nearest is infinity.
                let below = <$type>::from_bits(<$type>::MAX.to_bits() - 1);
                let half_step = (f64::from(<$type>::MAX) - f64::from(below)) / 2.0;
                best.filter(|c| near.is_finite() || distance(*c) < half_step).unwrap_or(near)
            }

            proptest! {
                /// n - 1 roundings in binary32 and one to 16 bits: the bound that docs/numerics.md states.
                #[test]
                fn sums_and_averages_keep_the_bound(ranks in floats::<$type>(), average: bool) {
                    let op = if average { ReduceOp::Avg } else { ReduceOp::Sum };
                    let world_size = ranks.len() as f64;
                    let divisor = if average { world_size } else { 1.0 };
                    for (i, &result) in at_a_switch(op, &ranks).iter().enumerate() {
                        let column = || ranks.iter().map(|rank| f64::from(rank[i]));
                        let (exact, magnitudes) = (column().sum::<f64>() / divisor, column().map(f64::abs).sum::<f64>());
                        let on_the_way = (world_size - 1.0) * U_F32 * magnitudes * (1.0 + 1e-4) / divisor;
                        let result = f64::from(result);
                        if result.is_infinite() {
                            prop_assert!(magnitudes >= f64::from(<$type>::MAX));
                            continue;
                        }
                        let last = (exact.abs() + on_the_way) * (U + 2.0 * U_F32) + $smallest / 2.0;
                        prop_assert!(
                            (result - exact).abs() <= on_the_way + last,
                            "element {i}: {result:e} for {exact:e}"
                        );
                    }
                }

                /// The quotient of any lane by up to 1,023 ranks, normal in binary32, is rounded as if once (docs/numerics.md).
                #[test]
                fn quotients_are_rounded_as_if_once(sums in vec(-1e6f32..1e6, 1..40), ranks in 1..=1_023u16) {
                    let combine = native(<$type>::DTYPE, ReduceOp::Avg).unwrap();
                    // Ties of the quotient, and sums that are one unit beside them.
                    let ties = sums.iter().flat_map(|&x| {
                        let tie = f32::from_bits(x.to_bits() & !((1 << (24 - $precision - 1)) - 1));
                        let product = tie * f32::from(ranks);
                        [x, product, product.next_up(), product.next_down()]
                    });
                    let sums: Vec<f32> = ties.collect();
                    let mut lanes: Vec<u8> = sums.iter().flat_map(|x| x.to_ne_bytes()).collect();
                    (combine.finish)(&mut lanes, ranks);
                    let mut result = vec![0; 2 * sums.len()];
                    (combine.load)(&lanes, &mut result);
                    for (got, &sum) in elements::<$type>(&result).into_iter().zip(&sums) {
                        // binary64 is too precise to fall on a tie that is none: from there one rounding decides.
                        let expected = nearest(f64::from(sum) / f64::from(ranks));
                        prop_assert!(got == expected, "{sum:e} / {ranks}: {got:e}, not {expected:e}");
                    }
                }

                /// As words of 16 bits each way, and as fixed point that hosts encode and decode: the same bits.
                #[test]
                fn fixed_point_is_that_of_the_hosts(
                    mut ranks in floats::<$type>(), holes in pairs(64, 6), kinds in pairs(3, 6), average: bool
                ) {
                    for ((rank, element), (kind, _)) in holes.into_iter().zip(kinds) {
                        let rank = rank % ranks.len();
                        let element = element % ranks[rank].len();
                        ranks[rank][element] = [<$type>::INFINITY, <$type>::NEG_INFINITY, <$type>::NAN][kind];
                    }
                    fixed_point_agrees(&ranks, if average { ReduceOp::Avg } else { ReduceOp::Sum });
                }
            }

            /// Every element of the type, in one block and alone, with few and with many ranks.
            #[test]
            fn every_element_in_fixed_point_is_that_of_the_hosts() {
                let all: Vec<$type> = (0..=u16::MAX).map(<$type>::from_bits).collect();
                let reversed: Vec<$type> = all.iter().rev().copied().collect();
                let finite = |block: &[$type]| block.iter().copied().filter(|x| x.is_finite()).collect::<Vec<_>>();
                for op in ReduceOp::FIXED {
                    fixed_point_agrees(&[all.clone(), reversed.clone(), all.clone()], op);
                    fixed_point_agrees(&[finite(&all), finite(&reversed)], op);
                    for chunk in all.chunks(256).filter(|chunk| chunk[0].is_finite()) {
                        fixed_point_agrees(&[finite(chunk)], op);
                        fixed_point_agrees(&vec![finite(chunk); 7], op);
                    }
                }
            }
        }
    };
}

sixteen_bits!(binary16, f16, 11, 2f64.powi(-24));
sixteen_bits!(bfloat16, bf16, 8, 2f64.powi(-133));

fn fixed_point_agrees<T: FromBinary32 + AnyBits>(ranks: &[Vec<T>], op: ReduceOp) {
    let (expected, scale) = allreduce(ranks, op);
    let block = ranks.iter().fold(BlockExponent::ZERO, |block, rank| block.join(codec::exponent(rank)));
    assert_eq!(scale, Scale::new(block, ranks.len() as u16));
    let kernels = fixed_16(T::DTYPE).unwrap();
    // Two racks, and a partial sum between their switches.
    let mut racks = [lanes_for(fixed(), expected.len()), lanes_for(fixed(), expected.len())];
    for (at, rank) in ranks.iter().enumerate() {
        let step = if at < 2 { kernels.store } else { kernels.add };
        step(&mut racks[at % 2], &packet(rank), scale);
    }
    let [mut lanes, other] = racks;
    let mut partial = vec![0; 4 * expected.len()];
    (fixed().load_partial)(&other, &mut partial);
    (fixed().add_partial)(&mut lanes, &partial);
    let mut result = vec![0; 2 * expected.len()];
    (kernels.load)(&lanes, &mut result, scale, op);
    for (i, (got, expected)) in elements::<T>(&result).iter().zip(&expected).enumerate() {
        assert_eq!(got.bits(), expected.bits(), "{op}, element {i}: {got:?} is not {expected:?}");
    }
}

#[test]
fn fixed_point_of_16_bits_is_for_floats_of_16_bits() {
    let served: Vec<DType> = DType::ALL.into_iter().filter(|&dtype| fixed_16(dtype).is_some()).collect();
    assert_eq!(served, [DType::F16, DType::BF16]);
}
