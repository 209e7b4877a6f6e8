//! Asks the processor to fetch memory that will be needed a few events from now.
//!
//! What is in flight on a large network (packets, payloads) is more than the inner caches hold, and each event touches
//! another part of it. The events to come are known, so the wait can overlap with the work on those before.

/// Fetches the cache line at `place`. Changes nothing that a program can see.
#[inline(always)]
pub(super) fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed, and this one is a reference's.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
