//! Memory for accumulators.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// The alignment: a cache line, and the widest register.
const ALIGNMENT: usize = 64;

/// A fixed number of bytes, zero at first, whose start is a multiple of 64. Allocated when made; never grows.
pub struct Lanes {
    /// The bytes, and as many more as it takes to find an aligned start.
    allocation: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Lanes {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Lanes {
        let allocation = vec![0; allocation_len(len)].into_boxed_slice();
        // If the distance is not known (which happens only in constant evaluation), an unaligned start serves as well.
        let distance = allocation.as_ptr().align_offset(ALIGNMENT);
        Lanes { start: if distance < ALIGNMENT && len > 0 { distance } else { 0 }, allocation, len }
    }

    /// The [`Lanes::memory_bytes`] that lanes of this length will have.
    pub fn memory_needed(len: usize) -> usize {
        size_of::<Lanes>() + allocation_len(len)
    }

    /// Bytes that were allocated, and the bytes of this value itself.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Lanes>() + self.allocation.len()
    }
}

/// The size of an allocation that has `len` aligned bytes in it.
fn allocation_len(len: usize) -> usize {
    if len == 0 { 0 } else { len + ALIGNMENT - 1 }
}

impl Clone for Lanes {
    fn clone(&self) -> Lanes {
        let mut lanes = Lanes::zeroed(self.len);
        lanes.copy_from_slice(self);
        lanes
    }
}

impl Hash for Lanes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.deref().hash(state);
    }
}

impl Deref for Lanes {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.allocation[self.start..self.start + self.len]
    }
}

impl DerefMut for Lanes {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.allocation[self.start..self.start + self.len]
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_aligned_zeros_of_the_requested_length() {
        for len in [0, 1, 63, 64, 65, 4096, 100_000] {
            let mut lanes = Lanes::zeroed(len);
            assert_eq!((lanes.len(), lanes.iter().all(|&byte| byte == 0)), (len, true));
            assert!(len == 0 || lanes.as_ptr().addr().is_multiple_of(ALIGNMENT), "{len}");
            lanes.fill(7);
            assert_eq!(lanes.memory_bytes(), Lanes::memory_needed(len));
            assert!(lanes.memory_bytes() < len + 64 + size_of::<Lanes>());
            let moved = Box::new(lanes);
            assert!(len == 0 || moved.as_ptr().addr().is_multiple_of(ALIGNMENT), "it stays where it is");
        }
    }
}
