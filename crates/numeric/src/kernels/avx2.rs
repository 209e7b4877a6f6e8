//! The kernels for AVX2 with F16C, 8 elements at a time. The last elements of a block take the portable path.
//!
//! Loops that only move, swap or add are the portable loops, compiled again for these instructions. Rounding is the
//! processor's default mode, nearest even.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::portable;
use super::{Combine, ElementKernels, Fold, Kernels, Unscale, table};
use crate::dtype::{DType, ReduceOp};
use crate::number::{DROPPED_BITS, FixedPoint, Number};
use crate::operator::Sum;
use crate::thc::{NEAR, Near};

/// Elements in one step.
const STEP: usize = 8;

/// True if this processor has the instructions of this file.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

/// Used only if [`is_available`].
pub(super) static KERNELS: Kernels = {
    let mut kernels = table::table::<Avx2>("avx2");
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
    Avx2, "avx2,f16c"
}

impl Near for Avx2 {
    #[inline(always)]
    fn combine(block: &mut [f32; NEAR], factor: f32, signs: u16) {
        // SAFETY: only loops that `run` compiles for this set get here; the block is two registers.
        unsafe {
            let [first, last] = [0, STEP].map(|at| {
                let scaled = _mm256_mul_ps(_mm256_loadu_ps(block.as_ptr().add(at)), _mm256_set1_ps(factor));
                combine_near(scaled, i32::from(signs) >> at)
            });
            _mm256_storeu_ps(block.as_mut_ptr(), _mm256_add_ps(first, last));
            _mm256_storeu_ps(block.as_mut_ptr().add(STEP), _mm256_sub_ps(first, last));
        }
    }
}

/// Changes signs where bits are set, and takes three steps of a Hadamard transform: of elements 1, 2 and 4 apart.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn combine_near(x: __m256, signs: i32) -> __m256 {
    let signs = _mm256_sllv_epi32(_mm256_set1_epi32(signs), _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
    let x = _mm256_xor_ps(x, _mm256_castsi256_ps(_mm256_and_si256(signs, _mm256_set1_epi32(i32::MIN))));
    let changed = |x, [a, b, c, d, e, f, g, h]: [f32; 8]| _mm256_xor_ps(x, _mm256_setr_ps(a, b, c, d, e, f, g, h));
    let [p, m] = [0.0, -0.0];
    let x = _mm256_add_ps(_mm256_permute_ps::<0b10_11_00_01>(x), changed(x, [p, m, p, m, p, m, p, m]));
    let x = _mm256_add_ps(_mm256_permute_ps::<0b01_00_11_10>(x), changed(x, [p, p, m, m, p, p, m, m]));
    _mm256_add_ps(_mm256_permute2f128_ps::<1>(x, x), changed(x, [p, p, p, p, m, m, m, m]))
}

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

/// An element type in registers: as 8 of binary32, or as 2 x 4 of binary64.
trait Float: FixedPoint {
    /// Loads 8 elements, exactly.
    ///
    /// # Safety
    /// 8 elements can be read at `from`; the processor has AVX2 and F16C.
    unsafe fn load(from: *const Self) -> __m256;

    /// Stores the first 4 and the last 4 elements, rounded once.
    ///
    /// # Safety
    /// 8 elements can be written at `to`; the processor has AVX2 and F16C.
    unsafe fn store(to: *mut Self, first: __m256d, last: __m256d);
}

impl Float for f32 {
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, first: __m256d, last: __m256d) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to, _mm256_set_m128(_mm256_cvtpd_ps(last), _mm256_cvtpd_ps(first))) }
    }
}

impl Float for f16 {
    #[inline(always)]
    unsafe fn load(from: *const f16) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { f16::widen_all(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f16, first: __m256d, last: __m256d) {
        // SAFETY: the caller's promise.
        unsafe { f16::store_f32(to, _mm256_set_m128(round_to_odd(last), round_to_odd(first))) }
    }
}

impl Float for bf16 {
    #[inline(always)]
    unsafe fn load(from: *const bf16) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { bf16::widen_all(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut bf16, first: __m256d, last: __m256d) {
        // SAFETY: the caller's promise.
        unsafe { bf16::store_f32(to, _mm256_set_m128(round_to_odd(last), round_to_odd(first))) }
    }
}

/// A 16-bit type, widened to binary32 and rounded from it.
trait Half: Float + Number<Lane = f32> {
    /// 8 elements, exactly.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C.
    unsafe fn widen_all(x: __m128i) -> __m256;

    /// Stores 8 elements, rounded to nearest even. Every NaN among them must be the canonical one.
    ///
    /// # Safety
    /// 8 elements can be written at `to`; the processor has AVX2 and F16C.
    unsafe fn store_f32(to: *mut Self, x: __m256);
}

impl Half for f16 {
    #[inline(always)]
    unsafe fn widen_all(x: __m128i) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(x) }
    }
    #[inline(always)]
    unsafe fn store_f32(to: *mut f16, x: __m256) {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)) }
    }
}

impl Half for bf16 {
    #[inline(always)]
    unsafe fn widen_all(x: __m128i) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(x))) }
    }
    #[inline(always)]
    unsafe fn store_f32(to: *mut bf16, x: __m256) {
        // SAFETY: the caller's promise.
        unsafe {
            let bits = _mm256_castps_si256(x);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let high = _mm256_srli_epi32::<16>(rounded);
            // Each 128-bit lane packs to its own halves: the quadwords 0 and 2 hold the result.
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(high, high));
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed))
        }
    }
}

/// Like the portable function of this name.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn round_to_odd(x: __m256d) -> __m128 {
    let (bits, dropped) = (_mm256_castpd_si256(x), _mm256_set1_epi64x(DROPPED_BITS as i64));
    let exact = _mm256_cmpeq_epi64(_mm256_and_si256(bits, dropped), _mm256_setzero_si256());
    let sticky = _mm256_andnot_si256(exact, _mm256_set1_epi64x(DROPPED_BITS as i64 + 1));
    _mm256_cvtpd_ps(_mm256_castsi256_pd(_mm256_or_si256(_mm256_andnot_si256(dropped, bits), sticky)))
}

/// The same numbers, with every NaN replaced by the canonical one.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn canonical(x: __m256) -> __m256 {
    _mm256_blendv_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc0_0000)), _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn swap_bytes_32(words: __m256i) -> __m256i {
    let order = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn swap_bytes_16(words: __m128i) -> __m128i {
    _mm_shuffle_epi8(words, _mm_set_epi8(14, 15, 12, 13, 10, 11, 8, 9, 6, 7, 4, 5, 2, 3, 0, 1))
}

#[target_feature(enable = "avx2,f16c")]
fn encode<T: Float>(input: &[T], factors: [f32; 2], vector: &mut [u8]) {
    let (steps, rest) = input.as_chunks::<STEP>();
    let (words, rest_of_vector) = vector.as_chunks_mut::<{ 4 * STEP }>();
    let [first, second] = factors.map(|factor| _mm256_set1_ps(factor));
    for (x, words) in steps.iter().zip(words) {
        // SAFETY: `x` and `words` are 8 elements each.
        unsafe {
            let scaled = _mm256_mul_ps(_mm256_mul_ps(T::load(x.as_ptr()), first), second);
            _mm256_storeu_si256(words.as_mut_ptr().cast(), swap_bytes_32(_mm256_cvtps_epi32(scaled)));
        }
    }
    portable::encode(rest, factors, rest_of_vector)
}

/// 8 words, scaled and divided.
///
/// # Safety
/// 32 bytes can be read at `from`; the processor has AVX2 and F16C.
#[inline(always)]
unsafe fn load_sums<const DIVIDE: bool>(from: *const u8, unit: __m256d, divisor: __m256d) -> [__m256d; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let words = swap_bytes_32(_mm256_loadu_si256(from.cast()));
        [_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words)].map(|half| {
            let sum = _mm256_mul_pd(_mm256_cvtepi32_pd(half), unit);
            if DIVIDE { _mm256_div_pd(sum, divisor) } else { sum }
        })
    }
}

#[target_feature(enable = "avx2,f16c")]
fn decode<T: Float>(vector: &[u8], unscale: Unscale, output: &mut [T]) {
    if unscale.divisor == 1.0 {
        decode_as::<T, false>(vector, unscale, output)
    } else {
        decode_as::<T, true>(vector, unscale, output)
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn decode_as<T: Float, const DIVIDE: bool>(vector: &[u8], unscale: Unscale, output: &mut [T]) {
    let (steps, rest) = output.as_chunks_mut::<STEP>();
    let (words, rest_of_vector) = vector.as_chunks::<{ 4 * STEP }>();
    let (unit, divisor) = (_mm256_set1_pd(unscale.unit), _mm256_set1_pd(unscale.divisor));
    for (x, words) in steps.iter_mut().zip(words) {
        // SAFETY: `x` and `words` are 8 elements each.
        unsafe {
            let [first, last] = load_sums::<DIVIDE>(words.as_ptr(), unit, divisor);
            T::store(x.as_mut_ptr(), first, last);
        }
    }
    portable::decode(rest_of_vector, unscale, rest)
}

#[target_feature(enable = "avx2,f16c")]
fn decode_i32(vector: &[u8], unscale: Unscale, output: &mut [i32]) {
    if unscale.divisor == 1.0 {
        return portable::read(vector, output);
    }
    let (steps, rest) = output.as_chunks_mut::<STEP>();
    let (words, rest_of_vector) = vector.as_chunks::<{ 4 * STEP }>();
    let (unit, divisor) = (_mm256_set1_pd(1.0), _mm256_set1_pd(unscale.divisor));
    for (x, words) in steps.iter_mut().zip(words) {
        // SAFETY: `x` and `words` are 8 elements each.
        unsafe {
            let [first, last] = load_sums::<true>(words.as_ptr(), unit, divisor).map(|sum| _mm256_cvttpd_epi32(sum));
            _mm256_storeu_si256(x.as_mut_ptr().cast(), _mm256_set_m128i(last, first));
        }
    }
    portable::decode_i32(rest_of_vector, unscale, rest)
}

/// Adds 8 elements of memory and 8 of the packet, in binary32.
///
/// # Safety
/// 8 elements can be read at `x` and at `bytes`, and written at `sum`; the processor has AVX2 and F16C.
#[inline(always)]
unsafe fn add_step<T: Half>(x: *const T, bytes: *const u8, sum: *mut T) {
    // SAFETY: the caller's promise.
    unsafe {
        let other = swap_bytes_16(_mm_loadu_si128(bytes.cast()));
        T::store_f32(sum, canonical(_mm256_add_ps(T::load(x), T::widen_all(other))));
    }
}

#[target_feature(enable = "avx2,f16c")]
fn add_16<T: Half>(input: &[T], bytes: &[u8], output: &mut [T]) {
    let (xs, rest) = input.as_chunks::<STEP>();
    let (others, rest_of_bytes) = bytes.as_chunks::<{ 2 * STEP }>();
    let (sums, rest_of_output) = output.as_chunks_mut::<STEP>();
    for ((x, other), sum) in xs.iter().zip(others).zip(sums) {
        // SAFETY: each is 8 elements.
        unsafe { add_step(x.as_ptr(), other.as_ptr(), sum.as_mut_ptr()) }
    }
    portable::fold::<T, Sum>(rest, rest_of_bytes, rest_of_output)
}

#[target_feature(enable = "avx2,f16c")]
fn add_in_place_16<T: Half>(data: &mut [T], bytes: &[u8]) {
    let (xs, rest) = data.as_chunks_mut::<STEP>();
    let (others, rest_of_bytes) = bytes.as_chunks::<{ 2 * STEP }>();
    for (x, other) in xs.iter_mut().zip(others) {
        let x = x.as_mut_ptr();
        // SAFETY: each is 8 elements.
        unsafe { add_step(x, other.as_ptr(), x) }
    }
    portable::fold_in_place::<T, Sum>(rest, rest_of_bytes)
}

#[target_feature(enable = "avx2,f16c")]
fn store_lanes<T: Half>(lanes: &mut [u8], vector: &[u8]) {
    portable::check::<f32>(lanes, vector, size_of::<T>());
    let (steps, rest) = lanes.as_chunks_mut::<{ 4 * STEP }>();
    let (xs, rest_of_vector) = vector.as_chunks::<{ 2 * STEP }>();
    for (lanes, x) in steps.iter_mut().zip(xs) {
        // SAFETY: each is 8 elements.
        unsafe {
            let x = T::widen_all(swap_bytes_16(_mm_loadu_si128(x.as_ptr().cast())));
            _mm256_storeu_ps(lanes.as_mut_ptr().cast(), x);
        }
    }
    portable::store::<T>(rest, rest_of_vector)
}

#[target_feature(enable = "avx2,f16c")]
fn add_lanes<T: Half>(lanes: &mut [u8], vector: &[u8]) {
    portable::check::<f32>(lanes, vector, size_of::<T>());
    let (steps, rest) = lanes.as_chunks_mut::<{ 4 * STEP }>();
    let (xs, rest_of_vector) = vector.as_chunks::<{ 2 * STEP }>();
    for (lanes, x) in steps.iter_mut().zip(xs) {
        // SAFETY: each is 8 elements.
        unsafe {
            let x = T::widen_all(swap_bytes_16(_mm_loadu_si128(x.as_ptr().cast())));
            let lane = lanes.as_mut_ptr().cast();
            _mm256_storeu_ps(lane, canonical(_mm256_add_ps(_mm256_loadu_ps(lane), x)));
        }
    }
    portable::add::<T, Sum>(rest, rest_of_vector)
}

#[target_feature(enable = "avx2,f16c")]
fn load_lanes<T: Half>(lanes: &[u8], vector: &mut [u8]) {
    portable::check::<f32>(lanes, vector, size_of::<T>());
    let (steps, rest) = lanes.as_chunks::<{ 4 * STEP }>();
    let (xs, rest_of_vector) = vector.as_chunks_mut::<{ 2 * STEP }>();
    for (lanes, x) in steps.iter().zip(xs) {
        // SAFETY: each is 8 elements.
        unsafe {
            let mut narrowed = [T::default(); STEP];
            T::store_f32(narrowed.as_mut_ptr(), canonical(_mm256_loadu_ps(lanes.as_ptr().cast())));
            let bytes = swap_bytes_16(_mm_loadu_si128(narrowed.as_ptr().cast()));
            _mm_storeu_si128(x.as_mut_ptr().cast(), bytes);
        }
    }
    portable::load::<T>(rest, rest_of_vector)
}
