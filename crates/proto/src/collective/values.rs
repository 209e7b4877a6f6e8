//! What a vector of values is in memory: real elements, or a fingerprint that stands for them.
//!
//! With [`Elements`] a vector is what the wire carries, four bytes a value. With [`Fingerprint`] it is
//! [`FINGERPRINT_LEN`] bytes whatever its length, and adds up so that a missing, doubled or foreign contribution is
//! always seen; a simulation of thousands of hosts then carries no data and still proves every result. The machines
//! are the same for both, and so is their trace of packets.

use tributary_numeric::lanes;

/// Bytes of one fingerprint: three 64-bit words.
pub const FINGERPRINT_LEN: usize = 24;

/// How a switch keeps and sums vectors. `elements` is always the number of values that the wire carries.
pub trait Values: Copy + Default + Send + 'static {
    /// Bytes in the packet buffer for a vector of `elements`.
    fn buffer_len(elements: usize) -> usize;
    /// 32-bit words of accumulator for a slot of `elements`.
    fn lane_count(elements: usize) -> usize;
    /// `lanes <- vector`.
    fn store(lanes: &mut [u32], vector: &[u8]);
    /// `lanes <- lanes + vector`.
    fn add(lanes: &mut [u32], vector: &[u8]);
    /// `vector <- lanes`.
    fn load(lanes: &[u32], vector: &mut [u8]);
}

/// Real 32-bit integers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elements;

impl Values for Elements {
    fn buffer_len(elements: usize) -> usize {
        4 * elements
    }
    fn lane_count(elements: usize) -> usize {
        elements
    }
    fn store(lanes: &mut [u32], vector: &[u8]) {
        lanes::store_be(lanes, vector);
    }
    fn add(lanes: &mut [u32], vector: &[u8]) {
        lanes::add_be(lanes, vector);
    }
    fn load(lanes: &[u32], vector: &mut [u8]) {
        lanes::load_be(lanes, vector);
    }
}

/// Three words that are summed modulo 2^64 in place of the elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fingerprint;

impl Values for Fingerprint {
    fn buffer_len(elements: usize) -> usize {
        if elements == 0 { 0 } else { FINGERPRINT_LEN }
    }
    fn lane_count(elements: usize) -> usize {
        Fingerprint::buffer_len(elements) / 4
    }
    fn store(lanes: &mut [u32], vector: &[u8]) {
        lanes::store_be(lanes, vector);
    }
    fn add(lanes: &mut [u32], vector: &[u8]) {
        for (pair, bytes) in lanes.chunks_exact_mut(2).zip(vector.chunks_exact(8)) {
            let sum = (u64::from(pair[0]) << 32 | u64::from(pair[1]))
                .wrapping_add(u64::from_be_bytes(bytes.try_into().expect("8 bytes")));
            pair[0] = (sum >> 32) as u32;
            pair[1] = sum as u32;
        }
    }
    fn load(lanes: &[u32], vector: &mut [u8]) {
        lanes::load_be(lanes, vector);
    }
}
