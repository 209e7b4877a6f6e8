//! How much of anything a module may have, or take.

/// Bytes of a module, at most.
pub(crate) const MOST_MODULE_BYTES: usize = 64 * 1024;
/// Functions of a module, at most: compilation has no limit of its own.
pub(crate) const MOST_FUNCTIONS: u32 = 256;
/// Bytes of a guest's own memory, at most: data, and the stack of languages that have one.
pub(crate) const MOST_OWN_BYTES: usize = 1024 * 1024;
/// Instructions that an element may take, and as many more for each of its bytes: half a million for a packet of 1,432 elements of
/// one byte.
pub(crate) const MOST_FUEL: u64 = 256;
pub(crate) const MOST_FUEL_PER_BYTE: u64 = 64;
