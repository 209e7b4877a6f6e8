//! The kernels for AVX-512 (F, BW, DQ, VL), 16 elements at a time. A mask cuts the last step of a block to size.
//!
//! Loops that only move, swap or add are the portable loops, compiled again for these instructions.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::portable;
use super::{Combine, ElementKernels, Fold, Kernels, Unscale, table};
use crate::dtype::{DType, ReduceOp};
use crate::number::{DROPPED_BITS, FixedPoint, Number};
use crate::thc::Near;

/// Elements in one step.
const STEP: usize = 16;

/// True if this processor has the instructions of this file.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// Used only if [`is_available`].
pub(super) static KERNELS: Kernels = {
    let mut kernels = table::table::<Avx512>("avx512");
    kernels.f32 = convert(kernels.f32);
    kernels.f16 = add_halves(convert(kernels.f16));
    kernels.bf16 = add_halves(convert(kernels.bf16));
    if let Some(fixed) = &mut kernels.i32.fixed {
        fixed.decode = enter!(decode_i32(vector: &[u8], unscale: Unscale, output: &mut [i32]));
    }
    let [f16_row, bf16_row] = [DType::F16 as usize - 1, DType::BF16 as usize - 1];
    kernels.native[f16_row] = widen_halves::<f16>(kernels.native[f16_row]);
    kernels.native[bf16_row] = widen_halves::<bf16>(kernels.native[bf16_row]);
    kernels
};

instruction_set! {
    /// The instructions of this file.
    Avx512, "avx512f,avx512bw,avx512dq,avx512vl"
}

impl Near for Avx512 {}

/// Hand-written kernels for fixed point.
const fn convert<T: Float>(mut kernels: ElementKernels<T>) -> ElementKernels<T> {
    if let Some(fixed) = &mut kernels.fixed {
        fixed.encode = enter!(encode::<T>(input: &[T], factors: [f32; 2], vector: &mut [u8]));
        fixed.decode = enter!(decode::<T>(vector: &[u8], unscale: Unscale, output: &mut [T]));
    }
    kernels
}

/// Hand-written kernels for sums of 16-bit floats.
const fn add_halves<T: Half>(mut kernels: ElementKernels<T>) -> ElementKernels<T> {
    kernels.folds.sum = Fold {
        out_of_place: enter!(add_16::<T>(input: &[T], bytes: &[u8], output: &mut [T])),
        in_place: enter!(add_in_place_16::<T>(data: &mut [T], bytes: &[u8])),
    };
    kernels
}

/// Hand-written kernels for accumulators of 16-bit floats: widening and narrowing for all operators, and sums.
const fn widen_halves<T: Half>(
    mut row: [Option<Combine>; ReduceOp::ALL.len()],
) -> [Option<Combine>; ReduceOp::ALL.len()] {
    let mut at = 0;
    while at < row.len() {
        if let Some(combine) = &mut row[at] {
            combine.store = enter!(store_lanes::<T>(lanes: &mut [u8], vector: &[u8]));
            combine.load = enter!(load_lanes::<T>(lanes: &[u8], vector: &mut [u8]));
            if at == ReduceOp::Sum.code() as usize - 1 || at == ReduceOp::Avg.code() as usize - 1 {
                combine.add = enter!(add_lanes::<T>(lanes: &mut [u8], vector: &[u8]));
                combine.add_left = combine.add;
            }
        }
        at += 1;
    }
    row
}

/// An element type in registers: as 16 of binary32, or as 2 x 8 of binary64.
trait Float: FixedPoint {
    /// Loads the elements of the mask, exactly; zeros for the others.
    ///
    /// # Safety
    /// The mask's elements can be read at `from`; the processor has the instructions of this file.
    unsafe fn load(from: *const Self, mask: __mmask16) -> __m512;

    /// Stores the mask's elements, of two registers with 8 each, rounded once.
    ///
    /// # Safety
    /// The mask's elements can be written at `to`; the processor has the instructions of this file.
    unsafe fn store(to: *mut Self, mask: __mmask16, first: __m512d, last: __m512d);
}

impl Float for f32 {
    #[inline(always)]
    unsafe fn load(from: *const f32, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, mask: __mmask16, first: __m512d, last: __m512d) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_storeu_ps(to, mask, join(_mm512_cvtpd_ps(first), _mm512_cvtpd_ps(last))) }
    }
}

macro_rules! half_float {
    ($type:ty) => {
        impl Float for $type {
            #[inline(always)]
            unsafe fn load(from: *const $type, mask: __mmask16) -> __m512 {
                // SAFETY: the caller's promise.
                unsafe { <$type>::widen_all(_mm256_maskz_loadu_epi16(mask, from.cast())) }
            }
            #[inline(always)]
            unsafe fn store(to: *mut $type, mask: __mmask16, first: __m512d, last: __m512d) {
                // SAFETY: the caller's promise.
                unsafe {
                    let x = <$type>::narrow_all(join(round_to_odd(first), round_to_odd(last)));
                    _mm256_mask_storeu_epi16(to.cast(), mask, x)
                }
            }
        }
    };
}

half_float!(f16);
half_float!(bf16);

/// A 16-bit type, widened to binary32 and rounded from it.
trait Half: Float + Number<Lane = f32> {
    /// 16 elements, exactly.
    ///
    /// # Safety
    /// The processor has the instructions of this file.
    unsafe fn widen_all(x: __m256i) -> __m512;

    /// 16 elements, rounded to nearest even. Every NaN among them must be the canonical one.
    ///
    /// # Safety
    /// The processor has the instructions of this file.
    unsafe fn narrow_all(x: __m512) -> __m256i;
}

impl Half for f16 {
    #[inline(always)]
    unsafe fn widen_all(x: __m256i) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtph_ps(x) }
    }
    #[inline(always)]
    unsafe fn narrow_all(x: __m512) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x) }
    }
}

impl Half for bf16 {
    #[inline(always)]
    unsafe fn widen_all(x: __m256i) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x))) }
    }
    /// Written by hand, since `vcvtneps2bf16` flushes denormals.
    #[inline(always)]
    unsafe fn narrow_all(x: __m512) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe {
            let bits = _mm512_castps_si512(x);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded))
        }
    }
}

/// Like the portable function of this name.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn round_to_odd(x: __m512d) -> __m256 {
    let (bits, dropped) = (_mm512_castpd_si512(x), _mm512_set1_epi64(DROPPED_BITS as i64));
    let inexact = _mm512_test_epi64_mask(bits, dropped);
    let kept = _mm512_andnot_si512(dropped, bits);
    let odd = _mm512_mask_or_epi64(kept, inexact, kept, _mm512_set1_epi64(DROPPED_BITS as i64 + 1));
    _mm512_cvtpd_ps(_mm512_castsi512_pd(odd))
}

/// The same numbers, with every NaN replaced by the canonical one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn canonical(x: __m512) -> __m512 {
    let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
    _mm512_mask_blend_ps(is_nan, x, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc0_0000)))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn join(first: __m256, last: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(first), last)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn swap_bytes_32(words: __m512i) -> __m512i {
    let order = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn swap_bytes_16(words: __m256i) -> __m256i {
    let order = _mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1);
    _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
}

/// Calls `step` with the index of the first element of each step and the mask of its elements.
#[inline(always)]
fn for_each_step(elements: usize, mut step: impl FnMut(usize, __mmask16)) {
    let whole = elements - elements % STEP;
    for at in (0..whole).step_by(STEP) {
        step(at, __mmask16::MAX);
    }
    if whole < elements {
        step(whole, (1 << (elements - whole)) - 1);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn encode<T: Float>(input: &[T], factors: [f32; 2], vector: &mut [u8]) {
    assert_eq!(vector.len(), 4 * input.len());
    let [first, second] = factors.map(|factor| _mm512_set1_ps(factor));
    for_each_step(input.len(), |at, mask| {
        // SAFETY: the mask's elements lie inside `input`, and `vector` has as many words.
        unsafe {
            let scaled = _mm512_mul_ps(_mm512_mul_ps(T::load(input.as_ptr().add(at), mask), first), second);
            let words = _mm512_cvt_roundps_epi32::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(scaled);
            _mm512_mask_storeu_epi32(vector.as_mut_ptr().add(4 * at).cast(), mask, swap_bytes_32(words));
        }
    });
}

/// The words of the mask, scaled and divided.
///
/// # Safety
/// The mask's words can be read at `from`; the processor has the instructions of this file.
#[inline(always)]
unsafe fn load_sums<const DIVIDE: bool>(
    from: *const u8,
    mask: __mmask16,
    unit: __m512d,
    divisor: __m512d,
) -> [__m512d; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let words = swap_bytes_32(_mm512_maskz_loadu_epi32(mask, from.cast()));
        [_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64::<1>(words)].map(|half| {
            let sum = _mm512_mul_pd(_mm512_cvtepi32_pd(half), unit);
            if DIVIDE { _mm512_div_pd(sum, divisor) } else { sum }
        })
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn decode<T: Float>(vector: &[u8], unscale: Unscale, output: &mut [T]) {
    if unscale.divisor == 1.0 {
        decode_as::<T, false>(vector, unscale, output)
    } else {
        decode_as::<T, true>(vector, unscale, output)
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn decode_as<T: Float, const DIVIDE: bool>(vector: &[u8], unscale: Unscale, output: &mut [T]) {
    assert_eq!(vector.len(), 4 * output.len());
    let (unit, divisor) = (_mm512_set1_pd(unscale.unit), _mm512_set1_pd(unscale.divisor));
    for_each_step(output.len(), |at, mask| {
        // SAFETY: the mask's elements lie inside `output`, and `vector` has as many words.
        unsafe {
            let [first, last] = load_sums::<DIVIDE>(vector.as_ptr().add(4 * at), mask, unit, divisor);
            T::store(output.as_mut_ptr().add(at), mask, first, last);
        }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn decode_i32(vector: &[u8], unscale: Unscale, output: &mut [i32]) {
    if unscale.divisor == 1.0 {
        return portable::read(vector, output);
    }
    assert_eq!(vector.len(), 4 * output.len());
    let (unit, divisor) = (_mm512_set1_pd(1.0), _mm512_set1_pd(unscale.divisor));
    for_each_step(output.len(), |at, mask| {
        // SAFETY: the mask's elements lie inside `output`, and `vector` has as many words.
        unsafe {
            let sums = load_sums::<true>(vector.as_ptr().add(4 * at), mask, unit, divisor);
            let [first, last] = sums.map(|sum| _mm512_cvttpd_epi32(sum));
            let quotients = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), last);
            _mm512_mask_storeu_epi32(output.as_mut_ptr().add(at), mask, quotients);
        }
    });
}

/// Adds the mask's elements of memory and of the packet, in binary32.
///
/// # Safety
/// The mask's elements can be read at `x` and at `bytes`, and written at `sum`; the processor has the instructions of
/// this file.
#[inline(always)]
unsafe fn add_step<T: Half>(x: *const T, bytes: *const u8, sum: *mut T, mask: __mmask16) {
    // SAFETY: the caller's promise.
    unsafe {
        let other = T::widen_all(swap_bytes_16(_mm256_maskz_loadu_epi16(mask, bytes.cast())));
        let added = canonical(_mm512_add_ps(T::load(x, mask), other));
        _mm256_mask_storeu_epi16(sum.cast(), mask, T::narrow_all(added));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_16<T: Half>(input: &[T], bytes: &[u8], output: &mut [T]) {
    assert!(bytes.len() == 2 * input.len() && output.len() == input.len());
    for_each_step(input.len(), |at, mask| {
        // SAFETY: the mask's elements lie inside `input`, and the others are as long.
        unsafe { add_step(input.as_ptr().add(at), bytes.as_ptr().add(2 * at), output.as_mut_ptr().add(at), mask) }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_in_place_16<T: Half>(data: &mut [T], bytes: &[u8]) {
    assert_eq!(bytes.len(), 2 * data.len());
    for_each_step(data.len(), |at, mask| {
        // SAFETY: the mask's elements lie inside `data`, and `bytes` is as long.
        unsafe {
            let x = data.as_mut_ptr().add(at);
            add_step(x, bytes.as_ptr().add(2 * at), x, mask)
        }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn store_lanes<T: Half>(lanes: &mut [u8], vector: &[u8]) {
    portable::check::<f32>(lanes, vector, size_of::<T>());
    for_each_step(vector.len() / 2, |at, mask| {
        // SAFETY: the mask's elements lie inside `vector`, and `lanes` has as many.
        unsafe {
            let x = T::widen_all(swap_bytes_16(_mm256_maskz_loadu_epi16(mask, vector.as_ptr().add(2 * at).cast())));
            _mm512_mask_storeu_ps(lanes.as_mut_ptr().add(4 * at).cast(), mask, x);
        }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn add_lanes<T: Half>(lanes: &mut [u8], vector: &[u8]) {
    portable::check::<f32>(lanes, vector, size_of::<T>());
    for_each_step(vector.len() / 2, |at, mask| {
        // SAFETY: the mask's elements lie inside `vector`, and `lanes` has as many.
        unsafe {
            let x = T::widen_all(swap_bytes_16(_mm256_maskz_loadu_epi16(mask, vector.as_ptr().add(2 * at).cast())));
            let lane = lanes.as_mut_ptr().add(4 * at).cast();
            let sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, lane), x);
            _mm512_mask_storeu_ps(lane, mask, canonical(sum));
        }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn load_lanes<T: Half>(lanes: &[u8], vector: &mut [u8]) {
    portable::check::<f32>(lanes, vector, size_of::<T>());
    for_each_step(vector.len() / 2, |at, mask| {
        // SAFETY: the mask's elements lie inside `vector`, and `lanes` has as many.
        unsafe {
            let x = canonical(_mm512_maskz_loadu_ps(mask, lanes.as_ptr().add(4 * at).cast()));
            let bytes = swap_bytes_16(T::narrow_all(x));
            _mm256_mask_storeu_epi16(vector.as_mut_ptr().add(2 * at).cast(), mask, bytes);
        }
    });
}
