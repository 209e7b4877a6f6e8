//! Data that every rank can make for all ranks, so that each can check the sum by itself.

use half::{bf16, f16};
use tributary_numeric::{DType, ReduceOp};

use crate::npy::Data;

/// The array of a rank: floats in [-1, 1), integers over their whole range.
pub fn array(dtype: DType, rank: u16, elements: usize) -> Data {
    let random = |index| random(rank, index);
    match dtype {
        DType::F32 => Data::F32((0..elements).map(|index| float(random(index))).collect()),
        DType::F16 => Data::F16((0..elements).map(|index| f16::from_f32(float(random(index)))).collect()),
        DType::BF16 => Data::BF16((0..elements).map(|index| bf16::from_f32(float(random(index)))).collect()),
        DType::I32 => Data::I32((0..elements).map(|index| integer(random(index))).collect()),
        other => unreachable!("{other} has no place in Data"),
    }
}

/// Compares a result with what a rank has made up, bit for bit; the error is a sentence about the first wrong element.
pub fn check_copy(rank: u16, result: &Data) -> Result<(), String> {
    let (expected, result) = (array(result.dtype(), rank, result.len()).to_bytes(false), result.to_bytes(false));
    match expected.iter().zip(&result).position(|(expected, byte)| expected != byte) {
        Some(at) => Err(format!("the result is wrong: byte {at} of {} differs from rank {rank}'s", result.len())),
        None => Ok(()),
    }
}

/// What a result should be, and how near.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Number of ranks.
    pub world: u16,
    /// The operator.
    pub op: ReduceOp,
    /// How often a sum is rounded to its type on the way: once by a switch, once for every hop of a ring.
    pub roundings: u16,
}

impl Expected {
    /// Compares a result with what the ranks' arrays give; the error is a sentence about the first wrong element.
    pub fn check(&self, result: &Data) -> Result<(), String> {
        match result {
            Data::I32(values) => check_integers(values, self),
            Data::F32(values) => check_floats(values.len(), |i| values[i].into(), DType::F32, self),
            Data::F16(values) => check_floats(values.len(), |i| values[i].to_f64(), DType::F16, self),
            Data::BF16(values) => check_floats(values.len(), |i| values[i].to_f64(), DType::BF16, self),
        }
    }
}

fn check_integers(values: &[i32], &Expected { world, op, .. }: &Expected) -> Result<(), String> {
    for (index, &value) in values.iter().enumerate() {
        let sum = (0..world).fold(0i32, |sum, rank| sum.wrapping_add(integer(random(rank, index))));
        let expected = if op == ReduceOp::Avg { sum / i32::from(world) } else { sum };
        if value != expected {
            return Err(format!("the result is wrong: element {index} is {value} and should be {expected}"));
        }
    }
    Ok(())
}

fn check_floats(
    elements: usize,
    value: impl Fn(usize) -> f64,
    dtype: DType,
    &Expected { world, op, roundings }: &Expected,
) -> Result<(), String> {
    let ranks = f64::from(world);
    let divisor = if op == ReduceOp::Avg { ranks } else { 1.0 };
    let rounding = f64::from(roundings) * rounding(dtype);
    // Theorem 1 with inputs below 1, where f is at least (2^31 - 1) / (4 n): the power of two below the paper's.
    let quantisation = ranks * ranks * 4.0 / f64::from(i32::MAX);
    for index in 0..elements {
        let inputs = (0..world).map(|rank| rounded(float(random(rank, index)), dtype));
        let (sum, magnitude) = inputs.fold((0.0, 0.0), |(sum, magnitude), x| (sum + x, magnitude + f64::abs(x)));
        // Partial sums are at most the magnitudes' sum; the only one that a switch rounds is the sum itself. An average
        // is rounded once more.
        let largest = if roundings == 1 { sum.abs() } else { magnitude } + quantisation;
        let (expected, got) = (sum / divisor, value(index));
        let bound = (quantisation + 2.0 * rounding * largest) / divisor;
        // False for a NaN too.
        let right = (got - expected).abs() <= bound;
        if !right {
            return Err(format!(
                "the result is wrong: element {index} is {got:e} and should be {expected:e}, give or take {bound:.1e}"
            ));
        }
    }
    Ok(())
}

/// Largest relative error of rounding to the type.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::EPSILON) / 2.0,
        DType::F16 => f16::EPSILON.to_f64() / 2.0,
        DType::BF16 => bf16::EPSILON.to_f64() / 2.0,
        integer => {
            debug_assert!(integer.is_integer());
            0.0
        }
    }
}

fn rounded(value: f32, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::from_f32(value).to_f64(),
        DType::BF16 => bf16::from_f32(value).to_f64(),
        _ => value.into(),
    }
}

/// 64 bits that look random and are the same for everybody (SplitMix64).
fn random(rank: u16, index: usize) -> u64 {
    let mut z = ((u64::from(rank) << 48) ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn float(random: u64) -> f32 {
    // 24 bits: every value is exact.
    ((random >> 40) as i32 - (1 << 23)) as f32 / (1 << 23) as f32
}

fn integer(random: u64) -> i32 {
    (random >> 32) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(dtype: DType, world: u16, elements: usize) -> Data {
        let sum =
            |index: usize| -> f64 { (0..world).map(|rank| rounded(float(random(rank, index)), dtype)).sum::<f64>() };
        match dtype {
            DType::F32 => Data::F32((0..elements).map(|index| sum(index) as f32).collect()),
            DType::F16 => Data::F16((0..elements).map(|index| f16::from_f64(sum(index))).collect()),
            DType::BF16 => Data::BF16((0..elements).map(|index| bf16::from_f64(sum(index))).collect()),
            DType::I32 => {
                let sum = |index| (0..world).fold(0i32, |sum, rank| sum.wrapping_add(integer(random(rank, index))));
                Data::I32((0..elements).map(sum).collect())
            }
            other => unreachable!("{other} has no place in Data"),
        }
    }

    fn sum_of(world: u16) -> Expected {
        Expected { world, op: ReduceOp::Sum, roundings: 1 }
    }

    #[test]
    fn the_exact_sum_passes_for_every_type_and_world() {
        for dtype in DType::FIXED {
            for world in [1, 2, 8, 32] {
                assert_eq!(sum_of(world).check(&exact(dtype, world, 1000)), Ok(()), "{dtype} {world}");
            }
        }
    }

    #[test]
    fn a_lost_or_doubled_contribution_does_not_pass() {
        for dtype in DType::FIXED {
            for world in [2, 8, 32] {
                for other in [world - 1, world + 1] {
                    let wrong = sum_of(world).check(&exact(dtype, other, 1000));
                    assert!(wrong.unwrap_err().contains("element 0 is"), "{dtype} {world} {other}");
                }
            }
        }
    }

    #[test]
    fn not_a_number_does_not_pass() {
        assert!(sum_of(1).check(&Data::F32(vec![f32::NAN])).is_err());
    }

    #[test]
    fn ranks_bring_different_values() {
        assert_ne!(array(DType::F32, 0, 8), array(DType::F32, 1, 8));
    }
}
