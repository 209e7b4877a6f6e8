//! How machines measure their memory: the bytes that the allocator has given them, not the bytes in use. Lists of jobs
//! have room for the jobs that are there, so that what a job is charged is what it takes, and is free when the job has
//! gone.

/// Bytes that a vector holds on the heap, without the heap memory of its elements.
pub fn heap_bytes<T>(vector: &Vec<T>) -> usize {
    vector.capacity() * size_of::<T>()
}

/// Puts an element into a list that has no room to spare. Whoever takes one out again calls [`Vec::shrink_to_fit`].
pub fn insert_exactly<T>(list: &mut Vec<T>, at: usize, element: T) {
    list.reserve_exact(1);
    list.insert(at, element);
}
