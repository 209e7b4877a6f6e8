//! Fetches memory into the processor's caches before it is needed.
//!
//! *The memory behind a block.* Blocks are worked on in order, but three blocks far from each other in turn, with
//! packets in between. The processor's own prefetchers do not follow this many streams, and would wait at the beginning
//! of each block.
//!
//! *A value* ([`first_line`], [`whole`]). A simulator of a thousand hosts knows which host's state it needs next, and
//! this state is in no inner cache.
#![allow(unsafe_code)]

/// Bytes of a cache line.
const LINE: usize = 64;

/// The most bytes that are fetched: further inside a block, the processor's own prefetchers follow.
const MOST_BYTES: usize = 2048;
/// Short blocks follow each other faster than memory answers: this many blocks lie before the block that is fetched.
const SHORT_BLOCKS_BETWEEN: usize = 2;

/// Fetches memory that will be read some blocks later. It changes nothing that a program can see.
#[inline(always)]
pub(crate) fn behind<T>(block: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for_each_line(block, line);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

/// Fetches memory that will be written some blocks later.
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

/// Fetches the cache line in which a value begins. It changes nothing that a program can see.
#[inline(always)]
pub fn first_line<T: ?Sized>(value: &T) {
    line(std::ptr::from_ref(value).cast());
}

/// Fetches all cache lines of a value.
#[inline(always)]
pub fn whole<T: ?Sized>(value: &T) {
    let (start, bytes) = (std::ptr::from_ref(value).cast::<i8>(), size_of_val(value));
    // A loop by hand: iterators in steps take three times the instructions, and this runs some times for each event.
    let mut at = 0;
    while at < bytes {
        line(start.wrapping_add(at));
        at += LINE;
    }
}

#[inline(always)]
fn line(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed: it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The cache lines of a later block, or of its beginning.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn for_each_line<T>(block: &[T], fetch: impl Fn(*const i8)) {
    let len = size_of_val(block);
    let between = if len <= MOST_BYTES { SHORT_BLOCKS_BETWEEN * len } else { 0 };
    let later = block.as_ptr_range().end.cast::<i8>().wrapping_add(between);
    for at in (0..len.min(MOST_BYTES)).step_by(LINE) {
        fetch(later.wrapping_add(at));
    }
}
