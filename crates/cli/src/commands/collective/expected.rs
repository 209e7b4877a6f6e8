//! The right results of collectives of made-up data, and their precision: exact for integers, minima and maxima; within
//! a bound for sums and products of floats.

use std::fmt::Display;

use half::{bf16, f16};
use tributary_numeric::thc::MAX_BLOCK;
use tributary_numeric::{BlockExponent, ReduceOp, Scale};
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;

use super::made_up::{Plan, Sample};
use crate::npy::{Data, each};

/// The right result, and its precision.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// For which collective the ranks made their arrays.
    pub plan: Plan,
    /// In which numbers floats are summed.
    pub numbers: Numbers,
    /// The fewest ranks that an average may cover, if it need not wait for all.
    pub quorum: Option<u16>,
    /// 16-bit floats are combined in 32 bits and rounded once, at the end; otherwise they are rounded at each step.
    pub rounds_once: bool,
}

impl Expected {
    /// The promise of a protocol. Switches have accumulators for 16-bit floats; hosts need not have them.
    pub fn of(plan: Plan, protocol: &Protocol, options: &Options) -> Expected {
        let quorum = protocol.options.quorum(options, plan.world_size);
        Expected { plan, numbers: (protocol.numbers)(options), quorum, rounds_once: protocol.sums_in_network() }
    }

    /// Compares a result with the sum of the ranks' arrays; the error is a sentence about the first wrong element.
    pub fn check(&self, result: &Data) -> Result<(), String> {
        self.check_at(result, |index| (index, 0..self.plan.world_size))
    }

    /// The same for a result that has only some elements: `at` returns for each place the number of the element, and
    /// the ranks that bring it.
    pub fn check_at<R: Iterator<Item = u16>>(
        &self,
        result: &Data,
        at: impl Fn(usize) -> (usize, R),
    ) -> Result<(), String> {
        each!(result, values => self.check_values(values, at))
    }

    fn check_values<T: Checked, R: Iterator<Item = u16>>(
        &self,
        values: &[T],
        at: impl Fn(usize) -> (usize, R),
    ) -> Result<(), String> {
        let mut inputs = Vec::with_capacity(usize::from(self.plan.world_size));
        let (mut error, mut allowed) = (0.0, 0.0);
        for (position, &value) in values.iter().enumerate() {
            let (index, ranks) = at(position);
            inputs.clear();
            inputs.extend(ranks.map(|rank| T::made_up(&self.plan, rank, index)));
            if let Some(squares) = value.squares(self, &inputs, values.len()) {
                (error, allowed) = (error + squares.0, allowed + squares.1);
                continue;
            }
            value.check(self, &inputs).map_err(|expected| {
                format!("the result is wrong: element {index} is {value} and should be {expected}")
            })?;
        }
        // A NaN is not right either.
        let is_right = error <= allowed;
        if is_right {
            return Ok(());
        }
        Err(format!("the result is wrong: its squared error is {error:.1e}, and codes of 4 bits allow {allowed:.1e}"))
    }
}

/// An element whose right value follows from the ranks' elements.
trait Checked: Sample + Display {
    /// Checks the element; the error is the right value.
    fn check(self, expected: &Expected, inputs: &[Self]) -> Result<(), String>;
    /// The element's squared error, and how large it may be on average over this many elements; `None` where each element
    /// has a bound of its own.
    fn squares(self, _expected: &Expected, _inputs: &[Self], _elements: usize) -> Option<(f64, f64)> {
        None
    }
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Checked for $type {
            fn check(self, expected: &Expected, inputs: &[$type]) -> Result<(), String> {
                let op = expected.plan.op;
                let all = inputs.iter().copied().reduce(|a, b| match op {
                    ReduceOp::Sum | ReduceOp::Avg => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::Band => a & b,
                    ReduceOp::Bor => a | b,
                    ReduceOp::Bxor => a ^ b,
                    ReduceOp::Custom(_) => unreachable!("own operators check themselves"),
                });
                let all = all.expect("a job has ranks");
                // In 128 bits, because a byte cannot count all ranks.
                let is_avg = op == ReduceOp::Avg;
                let right = if is_avg { (i128::from(all) / i128::from(expected.plan.world_size)) as $type } else { all };
                if self == right { Ok(()) } else { Err(right.to_string()) }
            }
        })*
    };
}

integers!(i64, i32, i16, i8, u8);

macro_rules! floats {
    ($($type:ty => $unit:expr, $least:expr),*) => {
        $(impl Checked for $type {
            fn check(self, expected: &Expected, inputs: &[$type]) -> Result<(), String> {
                let mut inputs: Vec<f64> = inputs.iter().map(|&input| input.into()).collect();
                let (right, bound) = bounded(expected, &inputs, $unit, $least);
                if let Some(least) = expected.quorum {
                    return is_between(self.into(), &mut inputs, least, bound);
                }
                // A NaN is not right either.
                let is_right = (f64::from(self) - right).abs() <= bound;
                if is_right { Ok(()) } else { Err(format!("{right:e}, give or take {bound:.1e}")) }
            }
            fn squares(self, expected: &Expected, inputs: &[$type], elements: usize) -> Option<(f64, f64)> {
                let is_rotated = matches!(expected.numbers, Numbers::Thc4(_));
                let inputs = inputs.iter().map(|&input| input.into());
                is_rotated.then(|| squares_of_rotated(expected, self.into(), inputs, elements))
            }
        })*
    };
}

floats!(
    f64 => f64::EPSILON / 2.0, f64::from_bits(1),
    f32 => UNIT_32, f32::from_bits(1).into(),
    f16 => f64::from(f16::EPSILON) / 2.0, f16::from_bits(1).into(),
    bf16 => f64::from(bf16::EPSILON) / 2.0, bf16::from_bits(1).into()
);

/// True if an average may cover only some of the ranks, at least `least`: it is neither below the average of the least
/// values nor above that of the greatest.
fn is_between(average: f64, inputs: &mut [f64], least: u16, bound: f64) -> Result<(), String> {
    inputs.sort_by(f64::total_cmp);
    let mean = |inputs: &[f64]| inputs.iter().sum::<f64>() / f64::from(least);
    let quorum = usize::from(least).min(inputs.len());
    let (low, high) = (mean(&inputs[..quorum]), mean(&inputs[inputs.len() - quorum..]));
    let is_right = average >= low - bound && average <= high + bound;
    if is_right { Ok(()) } else { Err(format!("between {low:e} and {high:e}, an average of {least} ranks or more")) }
}

/// The squared error of an element of rotated codes, and how large it may be on average: five times what is expected of
/// ranks that round independently (docs/protocols/thc.md), and in less than a block, as if all erred alike.
fn squares_of_rotated(
    expected: &Expected,
    value: f64,
    inputs: impl Iterator<Item = f64>,
    elements: usize,
) -> (f64, f64) {
    let ranks = f64::from(expected.plan.world_size);
    let (sum, largest) = inputs.fold((0.0, 0f64), |(sum, largest), x| (sum + x, largest.max(x.abs())));
    let divisor = if expected.plan.op == ReduceOp::Avg { ranks } else { 1.0 };
    let share = if elements < MAX_BLOCK { 0.2 * ranks * ranks } else { 0.1 * ranks };
    ((value - sum / divisor).powi(2), share * (largest / divisor).powi(2))
}

/// The largest relative error of rounding to binary32.
const UNIT_32: f64 = f32::EPSILON as f64 / 2.0;

/// The right value and the bound of a result's error, for a type with this unit of rounding and this least number above
/// zero.
fn bounded(expected: &Expected, inputs: &[f64], unit: f64, least: f64) -> (f64, f64) {
    let ranks = f64::from(expected.plan.world_size);
    // The error of each step, doubled because the right value is rounded too as it is computed here.
    let steps = 2.0 * ranks * if expected.rounds_once { unit.min(UNIT_32) } else { unit };
    let last = 2.0 * unit;
    let (sum, magnitude) = inputs.iter().fold((0.0, 0.0), |(sum, magnitude), x| (sum + x, magnitude + f64::abs(*x)));
    let error = match expected.numbers {
        // No partial sum is larger than the sum of the magnitudes.
        Numbers::Float => steps * magnitude + last * sum.abs(),
        Numbers::Fixed => {
            // Theorem 1 with inputs up to 1, where f is at least (2^31 - 1) / (4 n): the power of two below the paper's.
            let quantisation = ranks * ranks * 4.0 / f64::from(i32::MAX);
            quantisation + last * (sum.abs() + quantisation)
        }
        Numbers::Thc4(_) => unreachable!("rotated blocks are looked at as a whole"),
        Numbers::Int8(width) => {
            // A block's range is at most that of its inputs: 1.
            let range = BlockExponent { exponent: 0, non_finite: false };
            let quantisation = Scale::codes(range, expected.plan.world_size, width).bound();
            quantisation + last * (sum.abs() + quantisation)
        }
    };
    match expected.plan.op {
        ReduceOp::Sum => (sum, error),
        // Quotients may lie among the denormals.
        ReduceOp::Avg => (sum / ranks, error / ranks + last * sum.abs() / ranks + least),
        ReduceOp::Prod => {
            let product: f64 = inputs.iter().product();
            (product, (steps + last) * product.abs())
        }
        ReduceOp::Min => (inputs.iter().copied().fold(f64::INFINITY, f64::min), 0.0),
        ReduceOp::Max => (inputs.iter().copied().fold(f64::NEG_INFINITY, f64::max), 0.0),
        bitwise => unreachable!("{bitwise} of floats is refused before anything is sent"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy::of_type;
    use tributary_numeric::{CodeWidth, DType, codec};

    const ELEMENTS: usize = 1000;

    /// What hosts compute that combine the arrays of this many ranks one after the other.
    fn combined(dtype: DType, plan: &Plan, ranks: u16) -> Data {
        of_type!(dtype, combined_as(plan, ranks))
    }

    fn combined_as<T: Sample>(plan: &Plan, ranks: u16) -> Vec<T> {
        let array = |rank| (0..ELEMENTS).map(|index| T::made_up(plan, rank, index)).collect::<Vec<_>>();
        let mut result = array(0);
        let mut bytes = vec![0; size_of_val(result.as_slice())];
        for rank in 1..ranks {
            codec::write_native(&array(rank), &mut bytes);
            codec::accumulate_native_in_place(plan.op, &mut result, &bytes);
        }
        if plan.op == ReduceOp::Avg {
            codec::divide(&mut result, plan.world_size);
        }
        result
    }

    /// Each type with each operator that it has.
    fn all() -> impl Iterator<Item = (DType, ReduceOp)> {
        DType::ALL
            .into_iter()
            .flat_map(|dtype| ReduceOp::ALL.into_iter().filter(move |op| op.takes(dtype)).map(move |op| (dtype, op)))
    }

    fn expected(world_size: u16, op: ReduceOp) -> Expected {
        Expected { plan: Plan { world_size, op }, numbers: Numbers::Float, quorum: None, rounds_once: false }
    }

    #[test]
    fn the_right_result_passes_for_every_type_operator_and_world_size() {
        for (dtype, op) in all() {
            for world_size in [1, 2, 8, 32, 300] {
                let expected = expected(world_size, op);
                let result = combined(dtype, &expected.plan, world_size);
                assert_eq!(expected.check(&result), Ok(()), "{op} of {dtype} over {world_size}");
            }
        }
    }

    #[test]
    fn a_lost_contribution_does_not_pass() {
        for (dtype, op) in all() {
            for world_size in [2, 8] {
                let expected = expected(world_size, op);
                let wrong = expected.check(&combined(dtype, &expected.plan, world_size - 1));
                assert!(wrong.is_err_and(|text| text.contains("should be")), "{op} of {dtype} over {world_size}");
            }
        }
    }

    #[test]
    fn a_lost_contribution_to_floats_that_are_rounded_once_does_not_pass_with_many_ranks() {
        for dtype in [DType::F16, DType::BF16] {
            let expected = Expected { rounds_once: true, ..expected(32, ReduceOp::Sum) };
            assert!(expected.check(&combined(dtype, &expected.plan, 31)).is_err(), "{dtype}");
        }
    }

    #[test]
    fn fixed_point_must_keep_theorem_1() {
        let fixed = Expected { numbers: Numbers::Fixed, ..expected(4, ReduceOp::Sum) };
        // A sum in floats would be rounded more often than a sum in fixed point.
        let exact = |index| (0..4).map(|rank| f64::from(f32::made_up(&fixed.plan, rank, index))).sum::<f64>();
        let mut values: Vec<f32> = (0..ELEMENTS).map(|index| exact(index) as f32).collect();
        assert_eq!(fixed.check(&Data::F32(values.clone())), Ok(()));
        values[7] += 1e-6;
        assert!(fixed.check(&Data::F32(values)).unwrap_err().contains("element 7 is"));
    }

    #[test]
    fn rotated_codes_are_looked_at_as_a_whole() {
        for world_size in [2, 4] {
            let codes = Expected { numbers: Numbers::Thc4(CodeWidth::Eight), ..expected(world_size, ReduceOp::Sum) };
            let sum = |index, ranks| (0..ranks).map(|rank| f32::made_up(&codes.plan, rank, index)).sum::<f32>();
            let sums = |ranks| (0..2048).map(|index| sum(index, ranks)).collect::<Vec<f32>>();
            assert_eq!(codes.check(&Data::F32(sums(world_size))), Ok(()));
            // As far off as codes are, and as no codes are.
            let off = |by: f32| {
                (0u32..).zip(sums(world_size)).map(|(i, x)| if i & 1 == 0 { x + by } else { x - by }).collect()
            };
            assert_eq!(codes.check(&Data::F32(off(0.1))), Ok(()));
            for wrong in [vec![0.0; 2048], off(1.0), off(f32::NAN), sums(1)] {
                assert!(codes.check(&Data::F32(wrong)).unwrap_err().contains("its squared error is"), "{world_size}");
            }
        }
    }

    #[test]
    fn not_a_number_does_not_pass() {
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min] {
            assert!(expected(1, op).check(&Data::F32(vec![f32::NAN])).is_err(), "{op}");
        }
    }
}
