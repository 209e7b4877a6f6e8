//! Splitmix64 (Steele, Lea and Flood, 2014): the hash of this crate and of the protocols, for everything that must look
//! random and be the same everywhere.

/// One step: 64 bits that look random and differ for each `x`.
#[inline]
pub fn splitmix64(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
