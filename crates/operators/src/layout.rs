//! Where vectors lie in a guest's memory.

/// The alignment of vectors, which suits vector instructions.
const ALIGNMENT: usize = 64;

/// Vectors with the same maximum length, one after the other in the guest's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VectorLayout {
    first: usize,
    stride: usize,
}

impl VectorLayout {
    /// A layout behind the guest's own memory, for vectors of this many bytes.
    pub fn of(free: usize, vector_bytes: usize) -> VectorLayout {
        let first = free.next_multiple_of(ALIGNMENT) + ALIGNMENT;
        VectorLayout { first, stride: stride(vector_bytes) }
    }

    /// Bytes that `vectors` vectors take in the guest's memory; each is followed by guard bytes.
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
