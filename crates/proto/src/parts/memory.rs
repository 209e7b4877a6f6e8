//! What machines say of their memory: the bytes that the allocator has given them, not those that they use of it.

/// Bytes that a vector holds on the heap, without those that its elements hold in turn.
pub fn heap_bytes<T>(vector: &Vec<T>) -> usize {
    vector.capacity() * size_of::<T>()
}
