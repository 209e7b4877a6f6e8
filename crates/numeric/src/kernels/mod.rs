//! The inner loops, as tables of functions: one table for each instruction set, all with bit-identical results.
//!
//! [`best`] is what everything else uses. The other tables are for tests and benchmarks, which compare them.

#[macro_use]
mod recompile;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use std::sync::OnceLock;

use half::{bf16, f16};

/// What makes a rounded sum a result: `result = sum * unit / divisor`.
#[derive(Clone, Copy, Debug)]
pub struct Unscale {
    /// `1/f`: a power of two.
    pub unit: f64,
    /// The number of ranks for an average, 1 for a sum.
    pub divisor: f64,
}

/// The kernels of one element type. Callers see that lengths agree, and encode and decode finite blocks only.
pub struct ElementKernels<T: 'static> {
    /// The largest magnitude as the bits of a binary32, those of an infinity or NaN if there is one; 0 for integers.
    pub max_abs: fn(&[T]) -> u32,
    /// `vector <- round(input * factors[0] * factors[1])`, big-endian.
    pub encode: fn(&[T], [f32; 2], &mut [u8]),
    /// `output <- vector * unit / divisor`.
    pub decode: fn(&[u8], Unscale, &mut [T]),
    /// `bytes <- input`, big-endian.
    pub write: fn(&[T], &mut [u8]),
    /// `output <- bytes`, big-endian.
    pub read: fn(&[u8], &mut [T]),
    /// `output <- input + bytes`.
    pub add: fn(&[T], &[u8], &mut [T]),
    /// `data <- data + bytes`.
    pub add_in_place: fn(&mut [T], &[u8]),
    /// `data <- data / divisor`, rounded once; integers truncate towards zero.
    pub divide: fn(&mut [T], f64),
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
    /// Integers.
    pub i32: ElementKernels<i32>,
}

/// The fastest table that this processor can run.
pub fn best() -> &'static Kernels {
    static BEST: OnceLock<&'static Kernels> = OnceLock::new();
    BEST.get_or_init(|| available().pop().expect("the portable table is always there"))
}

/// Every table that this processor can run, the slowest first.
pub fn available() -> Vec<&'static Kernels> {
    let mut tables = vec![&portable::KERNELS];
    #[cfg(target_arch = "x86_64")]
    {
        tables.extend(avx2::is_available().then_some(&avx2::KERNELS));
        tables.extend(avx512::is_available().then_some(&avx512::KERNELS));
    }
    tables
}
