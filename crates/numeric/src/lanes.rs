//! The switch's arithmetic: vectors of big-endian 32-bit integers in packets, native accumulators in memory.

/// `lanes <- vector`. The lengths agree: `vector.len() == 4 * lanes.len()`.
pub fn store_be(lanes: &mut [u32], vector: &[u8]) {
    for (lane, bytes) in lanes.iter_mut().zip(vector.chunks_exact(4)) {
        *lane = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
}

/// `lanes <- lanes + vector`, modulo 2^32.
pub fn add_be(lanes: &mut [u32], vector: &[u8]) {
    for (lane, bytes) in lanes.iter_mut().zip(vector.chunks_exact(4)) {
        *lane = lane.wrapping_add(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    }
}

/// `vector <- lanes`.
pub fn load_be(lanes: &[u32], vector: &mut [u8]) {
    for (lane, bytes) in lanes.iter().zip(vector.chunks_exact_mut(4)) {
        bytes.copy_from_slice(&lane.to_be_bytes());
    }
}
