//! The switch's arithmetic: vectors of big-endian 32-bit integers in packets, native accumulators in memory.
//!
//! Every function panics if lengths disagree: `vector.len() == 4 * lanes.len()`.

use crate::kernels;

/// `lanes <- vector`.
pub fn store_be(lanes: &mut [u32], vector: &[u8]) {
    check(lanes, vector);
    (kernels::best().store_be)(lanes, vector)
}

/// `lanes <- lanes + vector`, modulo 2^32.
pub fn add_be(lanes: &mut [u32], vector: &[u8]) {
    check(lanes, vector);
    (kernels::best().add_be)(lanes, vector)
}

/// `vector <- lanes`.
pub fn load_be(lanes: &[u32], vector: &mut [u8]) {
    check(lanes, vector);
    (kernels::best().load_be)(lanes, vector)
}

fn check(lanes: &[u32], vector: &[u8]) {
    assert_eq!(vector.len(), 4 * lanes.len(), "a vector has 4 bytes for each lane");
}
