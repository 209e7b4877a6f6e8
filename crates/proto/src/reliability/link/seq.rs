//! Sequence numbers of a link: 64 bits in memory, 32 on the wire, and sets of neighbouring numbers.

/// The most packets that may be on their way on a link, and the most that a receiver keeps for collectives that its
/// caller has not submitted yet.
pub const WINDOW: u64 = 1024;

/// Words of a [`SeqSet`]: twice the window, so that a window that begins inside a word fits.
const WORDS: u64 = WINDOW * 2 / 64;

/// The number with these low bits that is nearest to `near`; `None` below zero.
pub fn expand(near: u64, low: u32) -> Option<u64> {
    near.checked_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
}

/// A set of numbers that are less than a window above a base. The base only rises.
#[derive(Clone, Debug, Default, Hash)]
pub struct SeqSet {
    words: [u64; WORDS as usize],
}

impl SeqSet {
    /// Adds a number; false if the set had it.
    pub fn insert(&mut self, seq: u64) -> bool {
        let (word, bit) = (&mut self.words[(seq / 64 % WORDS) as usize], 1 << (seq % 64));
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// True if the number is in the set.
    pub fn contains(&self, seq: u64) -> bool {
        self.words[(seq / 64 % WORDS) as usize] & 1 << (seq % 64) != 0
    }

    /// The word of 64 numbers that begins with the multiple of 64 at or below `seq`.
    pub fn word(&self, seq: u64) -> u64 {
        self.words[(seq / 64 % WORDS) as usize]
    }

    /// Forgets the words between the old and the new base.
    pub fn rise(&mut self, from: u64, to: u64) {
        for word in from / 64..to / 64 {
            self.words[(word % WORDS) as usize] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_to_the_nearest_number_with_the_same_low_bits() {
        assert_eq!(expand(5, 7), Some(7));
        assert_eq!(expand(0xFFFF_FFFE, 1), Some(0x1_0000_0001));
        assert_eq!(expand(0x1_0000_0001, 0xFFFF_FFFE), Some(0xFFFF_FFFE));
        assert_eq!(expand(0, 0xFFFF_FFFF), None);
    }

    #[test]
    fn keeps_a_window_while_the_base_rises() {
        let mut set = SeqSet::default();
        for base in 0..5000u64 {
            assert!(!set.contains(base + WINDOW - 1));
            assert!(set.insert(base + WINDOW - 1));
            assert!(!set.insert(base + WINDOW - 1));
            set.rise(base, base + 1);
        }
        assert!((5000..5000 + WINDOW - 1).all(|seq| set.contains(seq)));
    }
}
