//! Splitmix64 (Steele, Lea and Flood, 2014): the hash of this crate and of the protocols, for everything that must look
//! random and be the same everywhere.

/// What the state grows by from one number to the next: 2^64 over the golden ratio.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step: 64 bits that look random and differ for each `x`. A generator's next `x` is larger by [`GAMMA`].
#[inline]
pub fn splitmix64(x: u64) -> u64 {
    mix(x.wrapping_add(GAMMA))
}

/// The finalizer alone: a hash of one word.
#[inline]
pub fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
