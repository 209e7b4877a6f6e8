//! The limits of a module.

/// The most bytes of a module.
pub(crate) const MOST_MODULE_BYTES: usize = 64 * 1024;
/// The most functions of a module: compilation has no limit of its own.
pub(crate) const MOST_FUNCTIONS: u32 = 256;
/// The most bytes of a guest's own memory: data, and the stack of languages that have one.
pub(crate) const MOST_OWN_BYTES: usize = 1024 * 1024;
/// The most instructions that an element may take, and how many more for each of its bytes: half a million for a packet
/// of 1,432 elements of one byte.
pub(crate) const MOST_FUEL: u64 = 256;
pub(crate) const MOST_FUEL_PER_BYTE: u64 = 64;
