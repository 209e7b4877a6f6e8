//! The places of vectors in a guest's memory.

/// The alignment of vectors, which suits vector instructions.
const ALIGNMENT: usize = 64;

/// Vectors with the same maximum length, one after the other in the guest's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    first: usize,
    stride: usize,
}

impl Places {
    /// Places behind the guest's own memory, for vectors of so many bytes.
    pub fn of(free: usize, vector_bytes: usize) -> Places {
        let first = free.next_multiple_of(ALIGNMENT) + ALIGNMENT;
        Places { first, stride: stride(vector_bytes) }
    }

    /// Bytes that so many vectors take in the guest's memory; each is followed by guard bytes.
    pub fn bytes(vector_bytes: usize, vectors: usize) -> usize {
        vectors * stride(vector_bytes) + 2 * ALIGNMENT
    }

    /// The distance from a vector to the next.
    pub fn stride(self) -> usize {
        self.stride
    }

    /// The beginning of a vector.
    pub fn vector(self, number: usize) -> usize {
        self.first + number * self.stride
    }
}

fn stride(vector_bytes: usize) -> usize {
    (vector_bytes + 1).next_multiple_of(ALIGNMENT)
}
