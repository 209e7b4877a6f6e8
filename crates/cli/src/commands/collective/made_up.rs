//! Data that every rank can make for all ranks, so that each can check the result by itself with `expected.rs`.

use half::{bf16, f16};
use tributary_numeric::splitmix::{GAMMA, mix};
use tributary_numeric::{DType, ReduceOp, round_to_odd};

use crate::npy::{Data, Stored, of_type};

/// For which collective ranks make up arrays: a product or a bitwise operator would lose most ranks' part of data for a
/// sum.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of ranks.
    pub world_size: u16,
    /// The operator of the collective.
    pub op: ReduceOp,
}

/// An element that can be made up.
pub trait Sample: Stored {
    /// The element that a rank brings.
    fn made_up(plan: &Plan, rank: u16, index: usize) -> Self;
}

/// The array of a rank.
pub fn array(dtype: DType, plan: &Plan, rank: u16, elements: usize) -> Data {
    of_type!(dtype, (0..elements).map(|index| Sample::made_up(plan, rank, index)).collect())
}

/// Compares a result with a rank's made-up array, bit for bit; the error is a sentence about the first wrong element.
pub fn check_copy(plan: &Plan, rank: u16, result: &Data) -> Result<(), String> {
    let expected = array(result.dtype(), plan, rank, result.len()).to_bytes(false);
    let result = result.to_bytes(false);
    match expected.iter().zip(&result).position(|(expected, byte)| expected != byte) {
        Some(at) => Err(format!("the result is wrong: byte {at} of {} differs from rank {rank}'s", result.len())),
        None => Ok(()),
    }
}

/// A float in [-1, 1]. For a product it is near 1 or -1, larger it on even ranks and below it on odd ones, so that the
/// products of many ranks neither vanish nor overflow.
fn float(plan: &Plan, rank: u16, index: usize) -> f64 {
    let random = random(rank, index);
    let fraction = ((random >> 11) as i64 - (1 << 52)) as f64 / (1u64 << 52) as f64;
    if plan.op != ReduceOp::Prod {
        return fraction;
    }
    let larger = 1.0 + fraction.abs() / 4.0;
    let magnitude = if rank.is_multiple_of(2) { larger } else { 1.0 / larger };
    if random & 1 == 0 { magnitude } else { -magnitude }
}

/// The bits of an integer; each type takes as many as it has. For a product they are odd, so that it never becomes
/// zero. For *and* and *or* one rank decides each element, and the other ranks leave it unchanged.
fn integer(plan: &Plan, rank: u16, index: usize) -> u64 {
    let random = random(rank, index);
    let decides = index % usize::from(plan.world_size) == usize::from(rank);
    match plan.op {
        ReduceOp::Prod => random | 1,
        ReduceOp::Band if !decides => u64::MAX,
        ReduceOp::Bor if !decides => 0,
        _ => random,
    }
}

/// 64 bits that look random and are the same on all ranks.
pub fn random(rank: u16, index: usize) -> u64 {
    mix(((u64::from(rank) << 48) ^ index as u64).wrapping_mul(GAMMA))
}

macro_rules! sample {
    ($source:ident: $($type:ty => $from:expr),*) => {
        $(impl Sample for $type {
            fn made_up(plan: &Plan, rank: u16, index: usize) -> $type {
                $from($source(plan, rank, index))
            }
        })*
    };
}

sample!(
    float:
    f64 => |value| value,
    f32 => |value| value as f32,
    f16 => |value| f16::from_f32(round_to_odd(value)),
    bf16 => |value| bf16::from_f32(round_to_odd(value))
);
sample!(
    integer:
    i64 => |bits| bits as i64,
    i32 => |bits| bits as i32,
    i16 => |bits| bits as i16,
    i8 => |bits| bits as i8,
    u8 => |bits| bits as u8
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_bring_different_values() {
        for dtype in DType::ALL {
            for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(dtype)) {
                let plan = Plan { world_size: 2, op };
                assert_ne!(array(dtype, &plan, 0, 64), array(dtype, &plan, 1, 64), "{op} of {dtype}");
            }
        }
    }

    #[test]
    fn a_copy_is_the_roots_array_to_the_bit() {
        let plan = Plan { world_size: 2, op: ReduceOp::Sum };
        for dtype in DType::ALL {
            let result = array(dtype, &plan, 1, 100);
            assert_eq!(check_copy(&plan, 1, &result), Ok(()));
            assert!(check_copy(&plan, 0, &result).is_err(), "{dtype}");
        }
    }
}
