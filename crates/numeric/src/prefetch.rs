//! Asks the processor for the memory behind a block.
//!
//! Blocks are worked on in order, but three of them in turn, far from each other in the tensor, and packets in between:
//! more streams than the processor's own prefetchers follow. Each of their beginnings would be waited for.
#![allow(unsafe_code)]

/// Fetched at most: further inside a block the processor sees by itself where it leads.
const MOST_BYTES: usize = 2048;
/// Short blocks follow each other faster than memory answers: so many come before the one that is fetched.
const SHORT_BLOCKS_BETWEEN: usize = 2;

/// Fetches what will be read some blocks later. Changes nothing that a program can see.
#[inline(always)]
pub(crate) fn behind<T>(block: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for_each_line(block, |line| {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed: it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    });
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

/// The same for what will be written.
#[inline(always)]
pub(crate) fn behind_to_write<T>(block: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for_each_line(block, |line| {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: as above; nor does it write.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line) };
    });
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

/// The cache lines of a later block, or of its beginning.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn for_each_line<T>(block: &[T], fetch: impl Fn(*const i8)) {
    let len = size_of_val(block);
    let between = if len <= MOST_BYTES { SHORT_BLOCKS_BETWEEN * len } else { 0 };
    let later = block.as_ptr_range().end.cast::<i8>().wrapping_add(between);
    for at in (0..len.min(MOST_BYTES)).step_by(64) {
        fetch(later.wrapping_add(at));
    }
}
