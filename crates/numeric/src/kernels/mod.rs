//! The inner loops, as tables of functions: one table for each instruction set, all with bit-identical results.
//!
//! All other code uses [`best`]. The other tables are for tests and benchmarks, which compare the tables.

#[macro_use]
mod recompile;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod combine;
mod crc32c;
mod portable;
mod table;

use std::sync::OnceLock;

use half::{bf16, f16};

pub use self::combine::{Combine, Fixed16};
pub use self::crc32c::crc32c;
use crate::dtype::{DType, ReduceOp};
pub use crate::scale::Unscale;
use crate::scale::{BlockExponent, Scale};

/// The kernels of one element type. Callers check that lengths agree.
#[derive(Clone, Copy)]
pub struct ElementKernels<T: 'static> {
    /// The kernels of fixed point, for types that have it.
    pub fixed: Option<FixedKernels<T>>,
    /// `bytes <- input`, big-endian.
    pub write: fn(&[T], &mut [u8]),
    /// `output <- bytes`, big-endian.
    pub read: fn(&[u8], &mut [T]),
    /// The operators.
    pub folds: Folds<T>,
    /// `data <- data / ranks`, rounded once; integers truncate towards zero. See [`crate::codec::divide`].
    pub divide: fn(&mut [T], u16),
}

/// Conversions to 32-bit fixed point and to codes, and back. `encode` and `decode` are for blocks of finite elements.
#[derive(Clone, Copy)]
pub struct FixedKernels<T: 'static> {
    /// The largest magnitude as the bits of a binary32. If the block has an infinity or a NaN, the bits of one; 0 for
    /// integers.
    pub max_abs: fn(&[T]) -> u32,
    /// `vector <- round(input * factors[0] * factors[1])`, big-endian.
    pub encode: fn(&[T], [f32; 2], &mut [u8]),
    /// `output <- vector * unit / divisor`.
    pub decode: fn(&[u8], Unscale, &mut [T]),
    /// The largest magnitude of the finite elements.
    pub largest_finite: fn(&[T]) -> f32,
    /// Like `encode`, with counters of infinities.
    pub encode_counted: fn(&[T], Scale, &mut [u8]),
    /// Like `decode`, with counters of infinities.
    pub decode_counted: fn(&[u8], Scale, ReduceOp, &mut [T]),
    /// `vector <- codes of input * factor`, of 8 bits.
    pub encode_codes: fn(&[T], f64, &mut [u8]),
    /// `loss <- input - its codes / factor`.
    pub loss_of_codes: fn(&[T], f64, &mut [T]),
    /// `output <- vector * unit / divisor`, for sums of codes in 8 bits.
    pub decode_codes_8: fn(&[u8], Unscale, &mut [T]),
    /// The same for sums in 16 bits, big-endian.
    pub decode_codes_16: fn(&[u8], Unscale, &mut [T]),
    /// The norm of a block of rotated codes.
    pub norm: fn(&[T]) -> BlockExponent,
    /// `vector <- rotated codes of input`, of 4 bits.
    pub encode_rotated: fn(&[T], Scale, &mut [u8]),
    /// The same, and `loss <- input - what these codes bring`.
    pub encode_rotated_with_loss: fn(&[T], Scale, &mut [u8], &mut [T]),
    /// `output <- vector`, sums of the levels of rotated codes.
    pub decode_rotated: fn(&[u8], Scale, ReduceOp, &mut [T]),
}

/// The kernels that combine elements with those of a packet.
#[derive(Clone, Copy)]
pub struct Folds<T: 'static> {
    /// Sums, and the sums of averages.
    pub sum: Fold<T>,
    /// Minima.
    pub min: Fold<T>,
    /// Maxima.
    pub max: Fold<T>,
    /// Products.
    pub prod: Fold<T>,
    /// And, or, exclusive or, for integers.
    pub bitwise: Option<[Fold<T>; 3]>,
}

/// One operator on elements of one type.
#[derive(Clone, Copy)]
pub struct Fold<T: 'static> {
    /// `output <- input o bytes`.
    pub out_of_place: fn(&[T], &[u8], &mut [T]),
    /// `data <- data o bytes`.
    pub in_place: fn(&mut [T], &[u8]),
}

impl<T> Folds<T> {
    /// The kernels of an operator; `None` if it has no meaning for the type.
    pub fn of(&self, op: ReduceOp) -> Option<&Fold<T>> {
        match op {
            ReduceOp::Sum | ReduceOp::Avg => Some(&self.sum),
            ReduceOp::Min => Some(&self.min),
            ReduceOp::Max => Some(&self.max),
            ReduceOp::Prod => Some(&self.prod),
            ReduceOp::Band => self.bitwise.as_ref().map(|[and, _, _]| and),
            ReduceOp::Bor => self.bitwise.as_ref().map(|[_, or, _]| or),
            ReduceOp::Bxor => self.bitwise.as_ref().map(|[_, _, xor]| xor),
            ReduceOp::Custom(_) => None,
        }
    }
}

/// Every kernel for one instruction set.
pub struct Kernels {
    /// The instruction set's name.
    pub name: &'static str,
    /// `lanes <- vector`.
    pub store_be: fn(&mut [u32], &[u8]),
    /// `lanes <- lanes + vector`, modulo 2^32.
    pub add_be: fn(&mut [u32], &[u8]),
    /// `vector <- lanes`.
    pub load_be: fn(&[u32], &mut [u8]),
    /// Binary32.
    pub f32: ElementKernels<f32>,
    /// Binary16.
    pub f16: ElementKernels<f16>,
    /// bfloat16.
    pub bf16: ElementKernels<bf16>,
    /// Integers of 32 bits.
    pub i32: ElementKernels<i32>,
    /// Binary64.
    pub f64: ElementKernels<f64>,
    /// Integers of 8 bits.
    pub i8: ElementKernels<i8>,
    /// Integers of 16 bits.
    pub i16: ElementKernels<i16>,
    /// Integers of 64 bits.
    pub i64: ElementKernels<i64>,
    /// Unsigned integers of 8 bits.
    pub u8: ElementKernels<u8>,
    /// Accumulators of native elements, by the codes of type and operator.
    native: [[Option<Combine>; ReduceOp::ALL.len()]; DType::ALL.len()],
    /// Accumulators of fixed point.
    pub fixed: Combine,
    /// Accumulators of codes whose sums hosts get in 8 bits.
    pub codes_8: Combine,
    /// Accumulators of codes whose sums hosts get in 16 bits.
    pub codes_16: Combine,
    /// Accumulators of the levels of rotated codes whose sums hosts get in 8 bits.
    pub rotated_8: Combine,
    /// Accumulators of the levels of rotated codes whose sums hosts get in 16 bits.
    pub rotated_16: Combine,
    /// Accumulators of binary16 in fixed point.
    pub fixed_f16: Fixed16,
    /// Accumulators of bfloat16 in fixed point.
    pub fixed_bf16: Fixed16,
}

impl Kernels {
    /// Accumulators of native elements; `None` if the operator has no meaning for the type.
    pub fn combine(&self, dtype: DType, op: ReduceOp) -> Option<&Combine> {
        self.native[dtype as usize - 1].get(usize::from(op.code()) - 1)?.as_ref()
    }
}

/// The fastest table that this processor can run.
pub fn best() -> &'static Kernels {
    static BEST: OnceLock<&'static Kernels> = OnceLock::new();
    BEST.get_or_init(|| available().pop().expect("the portable table is always there"))
}

/// Every table that this processor can run, the slowest first.
pub fn available() -> Vec<&'static Kernels> {
    static PORTABLE: Kernels = table::table::<recompile::Baseline>("portable");
    let mut tables = vec![&PORTABLE];
    #[cfg(target_arch = "x86_64")]
    {
        tables.extend(avx2::is_available().then_some(&avx2::KERNELS));
        tables.extend(avx512::is_available().then_some(&avx512::KERNELS));
    }
    tables
}
