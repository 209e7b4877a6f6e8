//! Where vectors lie in a guest's memory.

/// Where a vector begins: what vector instructions like best.
const ALIGNMENT: usize = 64;

/// Vectors of one length at most, in the guest's memory, one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    first: usize,
    stride: usize,
}

impl Places {
    /// Behind the guest's own memory, for vectors of so many bytes.
    pub fn of(free: usize, vector_bytes: usize) -> Places {
        let first = free.next_multiple_of(ALIGNMENT) + ALIGNMENT;
        Places { first, stride: stride(vector_bytes) }
    }

    /// Bytes that so many vectors take in the guest's memory; each is followed by some that nobody may touch.
    pub fn bytes(vector_bytes: usize, vectors: usize) -> usize {
        vectors * stride(vector_bytes) + 2 * ALIGNMENT
    }

    /// From a vector to the next.
    pub fn stride(self) -> usize {
        self.stride
    }

    /// Where a vector begins.
    pub fn vector(self, number: usize) -> usize {
        self.first + number * self.stride
    }
}

fn stride(vector_bytes: usize) -> usize {
    (vector_bytes + 1).next_multiple_of(ALIGNMENT)
}
