//! Makes a whole table out of the portable loops, compiled for one set of instructions.

use half::{bf16, f16};

use super::recompile::InstructionSet;
use super::{Combine, ElementKernels, Fixed16, FixedKernels, Fold, Folds, Kernels, portable};
use crate::codes::{Code, CodeSum};
use crate::dtype::ReduceOp;
use crate::non_finite;
use crate::number::{Bits, FixedPoint, Number};
use crate::operator::{And, Max, Min, Operator, Or, Prod, Sum, Xor};
use crate::scale::{CodeWidth, Scale};
use crate::thc;

/// A plain function that runs one portable loop with the instructions `$set`.
macro_rules! compile {
    ($set:ident: $loop:expr; $($argument:ident: $type:ty),*) => {
        // SAFETY: the table is only handed out where the processor has the instructions (`is_available`).
        |$($argument: $type),*| unsafe { $set::run(|| $loop($($argument),*)) }
    };
}

/// The accumulators of a type, in the order of the operators' codes.
macro_rules! floats {
    ($set:ident, $name:literal, $type:ty) => {
        [
            Some(combine::<$set, $type, Sum>(concat!("sum of ", $name))),
            Some(average::<$set, $type>(concat!("avg of ", $name))),
            Some(combine::<$set, $type, Min>(concat!("min of ", $name))),
            Some(combine::<$set, $type, Max>(concat!("max of ", $name))),
            Some(combine::<$set, $type, Prod>(concat!("prod of ", $name))),
            None,
            None,
            None,
        ]
    };
}

/// The accumulators of an integer type, which also has operators on bits.
macro_rules! integers {
    ($set:ident, $name:literal, $type:ty) => {{
        let [sum, avg, min, max, prod, ..] = floats!($set, $name, $type);
        let band = Some(combine::<$set, $type, And>(concat!("band of ", $name)));
        let bor = Some(combine::<$set, $type, Or>(concat!("bor of ", $name)));
        let bxor = Some(combine::<$set, $type, Xor>(concat!("bxor of ", $name)));
        [sum, avg, min, max, prod, band, bor, bxor]
    }};
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
        native: [
            floats!(I, "f32", f32),
            floats!(I, "f16", f16),
            floats!(I, "bf16", bf16),
            integers!(I, "i32", i32),
            floats!(I, "f64", f64),
            integers!(I, "i8", i8),
            integers!(I, "i16", i16),
            integers!(I, "i64", i64),
            integers!(I, "u8", u8),
        ],
        fixed: combine::<I, i32, Sum>("fixed point"),
        codes_8: average::<I, Code>("codes, summed in 8 bits"),
        codes_16: wide_codes::<I>(),
        rotated_8: rotated::<I>(CodeWidth::Eight),
        rotated_16: rotated::<I>(CodeWidth::Sixteen),
        fixed_f16: fixed_16::<I, f16>(),
        fixed_bf16: fixed_16::<I, bf16>(),
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
        encode_codes: compile!(I: portable::encode_codes; input: &[T], factor: f64, vector: &mut [u8]),
        loss_of_codes: compile!(I: portable::loss_of_codes; input: &[T], factor: f64, loss: &mut [T]),
        decode_codes_8: compile!(I: portable::decode_codes::<T, Code>; vector: &[u8], unscale: super::Unscale, output: &mut [T]),
        decode_codes_16: compile!(I: portable::decode_codes::<T, CodeSum>; vector: &[u8], unscale: super::Unscale, output: &mut [T]),
        norm: compile!(I: portable::norm; input: &[T]),
        encode_rotated: compile!(I: portable::encode_rotated::<I, T>; input: &[T], scale: Scale, vector: &mut [u8]),
        encode_rotated_with_loss: compile!(
            I: portable::encode_rotated_with_loss::<I, T>; input: &[T], scale: Scale, vector: &mut [u8], loss: &mut [T]
        ),
        decode_rotated: compile!(I: portable::decode_rotated::<I, T>; vector: &[u8], scale: Scale, op: ReduceOp, output: &mut [T]),
    }
}

/// Codes whose results are what a partial result is: the lanes, exactly.
const fn wide_codes<I: InstructionSet>() -> Combine {
    let codes = combine::<I, Code, Sum>("codes, summed in 16 bits");
    Combine { result_size: size_of::<CodeSum>(), load: codes.load_partial, ..codes }
}

/// Levels of rotated codes. A vector's element is a byte, which has two codes, and its lanes are two of 16 bits; partial
/// results are the lanes.
const fn rotated<I: InstructionSet>(width: CodeWidth) -> Combine {
    let lanes = combine::<I, i16, Sum>("levels of rotated codes");
    let sums_in_8: fn(&[u8], &mut [u8]) = compile!(I: thc::load_8; lanes: &[u8], vector: &mut [u8]);
    let add: fn(&mut [u8], &[u8]) = compile!(I: thc::add; lanes: &mut [u8], vector: &[u8]);
    let (name, load) = match width {
        CodeWidth::Eight => ("rotated codes, summed in 8 bits", sums_in_8),
        CodeWidth::Sixteen => ("rotated codes, summed in 16 bits", lanes.load),
    };
    Combine {
        name,
        wire_size: 1,
        result_size: 2 * width.bytes(),
        lane_size: 4,
        partial_size: 4,
        store: compile!(I: thc::store; lanes: &mut [u8], vector: &[u8]),
        add,
        add_left: add,
        load,
        ..lanes
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
        out_of_place: compile!(I: portable::fold::<T, O>; input: &[T], bytes: &[u8], output: &mut [T]),
        in_place: compile!(I: portable::fold_in_place::<T, O>; data: &mut [T], bytes: &[u8]),
    }
}

const fn combine<I: InstructionSet, T: Number, O: Operator<T::Lane>>(name: &'static str) -> Combine {
    // The operators are commutative to the bit.
    let add: fn(&mut [u8], &[u8]) = compile!(I: portable::add::<T, O>; lanes: &mut [u8], vector: &[u8]);
    let add_partial: fn(&mut [u8], &[u8]) = compile!(I: portable::add::<T::Lane, O>; lanes: &mut [u8], vector: &[u8]);
    Combine {
        name,
        wire_size: size_of::<T>(),
        result_size: size_of::<T>(),
        lane_size: size_of::<T::Lane>(),
        partial_size: size_of::<T::Lane>(),
        store: compile!(I: portable::store::<T>; lanes: &mut [u8], vector: &[u8]),
        add,
        add_left: add,
        load: compile!(I: portable::load::<T>; lanes: &[u8], vector: &mut [u8]),
        store_partial: compile!(I: portable::store::<T::Lane>; lanes: &mut [u8], vector: &[u8]),
        add_partial,
        add_left_partial: add_partial,
        load_partial: compile!(I: portable::load::<T::Lane>; lanes: &[u8], vector: &mut [u8]),
        merge: compile!(I: portable::merge::<T::Lane, O>; lanes: &mut [u8], other: &[u8]),
        finish: |_, _| (),
    }
}

const fn average<I: InstructionSet, T: Number>(name: &'static str) -> Combine {
    let finish: fn(&mut [u8], u16) = compile!(I: portable::finish::<T::Lane>; lanes: &mut [u8], ranks: u16);
    Combine { finish, ..combine::<I, T, Sum>(name) }
}

const fn fixed_16<I: InstructionSet, T: FixedPoint>() -> Fixed16 {
    Fixed16 {
        wire_size: size_of::<T>(),
        store: compile!(I: portable::store_fixed::<T>; lanes: &mut [u8], vector: &[u8], scale: Scale),
        add: compile!(I: portable::add_fixed::<T>; lanes: &mut [u8], vector: &[u8], scale: Scale),
        load: compile!(I: portable::load_fixed::<T>; lanes: &[u8], vector: &mut [u8], scale: Scale, op: ReduceOp),
    }
}
