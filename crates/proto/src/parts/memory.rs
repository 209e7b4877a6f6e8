//! How machines measure their memory: the bytes that the allocator has given them, not the bytes in use.

/// Bytes that a vector holds on the heap, without the heap memory of its elements.
pub fn heap_bytes<T>(vector: &Vec<T>) -> usize {
    vector.capacity() * size_of::<T>()
}
