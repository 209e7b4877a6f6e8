//! A whole table out of the portable loops, compiled for one set of instructions.

use half::{bf16, f16};

use super::recompile::InstructionSet;
use super::{ElementKernels, FixedKernels, Fold, Folds, Kernels, portable};
use crate::element::FixedPoint;
use crate::non_finite;
use crate::number::{Bits, Number};
use crate::operator::{And, Max, Min, Operator, Or, Prod, Sum, Xor};

/// A plain function that runs one portable loop with the instructions `$set`.
macro_rules! compile {
    ($set:ident: $loop:expr; $($argument:ident: $type:ty),*) => {
        // SAFETY: the table is only handed out where the processor has the instructions (`is_available`).
        |$($argument: $type),*| unsafe { $set::run(|| $loop($($argument),*)) }
    };
}

/// Every kernel from its portable loop.
pub(super) const fn table<I: InstructionSet>(name: &'static str) -> Kernels {
    let integers = FixedKernels {
        max_abs: |_| 0,
        encode: compile!(I: encode_i32; input: &[i32], factors: [f32; 2], vector: &mut [u8]),
        decode: compile!(I: portable::decode_i32; vector: &[u8], unscale: super::Unscale, output: &mut [i32]),
        ..fixed::<I, i32>(|_| 0)
    };
    Kernels {
        name,
        store_be: compile!(I: portable::store_be; lanes: &mut [u32], vector: &[u8]),
        add_be: compile!(I: portable::add_be; lanes: &mut [u32], vector: &[u8]),
        load_be: compile!(I: portable::load_be; lanes: &[u32], vector: &mut [u8]),
        f32: float::<I, f32>(Some(fixed::<I, f32>(compile!(I: portable::max_abs_f32; input: &[f32])))),
        f16: float::<I, f16>(Some(fixed::<I, f16>(compile!(I: portable::max_abs_f16; input: &[f16])))),
        bf16: float::<I, bf16>(Some(fixed::<I, bf16>(compile!(I: portable::max_abs_bf16; input: &[bf16])))),
        i32: integer::<I, i32>(Some(integers)),
        f64: float::<I, f64>(None),
        i8: integer::<I, i8>(None),
        i16: integer::<I, i16>(None),
        i64: integer::<I, i64>(None),
        u8: integer::<I, u8>(None),
    }
}

#[inline(always)]
fn encode_i32(input: &[i32], _: [f32; 2], vector: &mut [u8]) {
    portable::write(input, vector)
}

const fn fixed<I: InstructionSet, T: FixedPoint>(max_abs: fn(&[T]) -> u32) -> FixedKernels<T> {
    FixedKernels {
        max_abs,
        encode: compile!(I: portable::encode; input: &[T], factors: [f32; 2], vector: &mut [u8]),
        decode: compile!(I: portable::decode; vector: &[u8], unscale: super::Unscale, output: &mut [T]),
        largest_finite: non_finite::largest_finite,
        encode_counted: non_finite::encode,
        decode_counted: non_finite::decode,
    }
}

const fn float<I: InstructionSet, T: Number>(fixed: Option<FixedKernels<T>>) -> ElementKernels<T> {
    ElementKernels {
        fixed,
        write: compile!(I: portable::write; input: &[T], bytes: &mut [u8]),
        read: compile!(I: portable::read; bytes: &[u8], output: &mut [T]),
        folds: Folds {
            sum: fold::<I, T, Sum>(),
            min: fold::<I, T, Min>(),
            max: fold::<I, T, Max>(),
            prod: fold::<I, T, Prod>(),
            bitwise: None,
        },
        divide: compile!(I: portable::divide; data: &mut [T], ranks: u16),
    }
}

const fn integer<I: InstructionSet, T: Number<Lane = T> + Bits>(fixed: Option<FixedKernels<T>>) -> ElementKernels<T> {
    let bitwise = Some([fold::<I, T, And>(), fold::<I, T, Or>(), fold::<I, T, Xor>()]);
    let arithmetic = float::<I, T>(fixed);
    ElementKernels { folds: Folds { bitwise, ..arithmetic.folds }, ..arithmetic }
}

const fn fold<I: InstructionSet, T: Number, O: Operator<T::Lane>>() -> Fold<T> {
    Fold {
        apart: compile!(I: portable::fold::<T, O>; input: &[T], bytes: &[u8], output: &mut [T]),
        in_place: compile!(I: portable::fold_in_place::<T, O>; data: &mut [T], bytes: &[u8]),
    }
}
