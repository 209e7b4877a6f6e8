//! Fingerprints of 128 bits that tell states apart. Of times they contain only the order.
//!
//! Among `n` states two have the same fingerprint by chance with a probability of at most `n^2 / 2^129`: 2^-75 for a
//! hundred million states. The hash is not secret and does not resist adversaries, but machines are not adversaries.

use std::hash::Hasher;

use tributary_proto::contract::state::TimeMark;
use tributary_proto::contract::time::Time;

/// What identifies a state.
pub type Fingerprint = u128;

/// Takes in a machine's state. It ignores spans, and of times it keeps only how they compare with each other and with
/// now: states that differ only in how long something took are the same.
#[derive(Default)]
pub struct StateHasher {
    lanes: [u64; 2],
    times: Vec<u64>,
}

/// Odd numbers with bits all over.
const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];
const SEEDS: [u64; 2] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];

impl StateHasher {
    /// Takes in a number.
    pub fn word(&mut self, word: u64) {
        for ((lane, multiplier), seed) in self.lanes.iter_mut().zip(MULTIPLIERS).zip(SEEDS) {
            *lane = fold(*lane ^ word ^ seed, multiplier).wrapping_add(word.rotate_left(32) ^ *lane);
        }
    }

    /// The fingerprint of everything that was taken in, at a time.
    pub fn fingerprint(mut self, now: Time) -> Fingerprint {
        let times = std::mem::take(&mut self.times);
        let mut ordered = times.clone();
        ordered.push(now.0);
        ordered.sort_unstable();
        ordered.dedup();
        let rank = |time: u64| ordered.binary_search(&time).map_or(u64::MAX, |rank| rank as u64);
        self.word(rank(now.0));
        times.iter().for_each(|&time| self.word(rank(time)));
        self.word(times.len() as u64);
        let [a, b] = self.lanes.map(|lane| fold(lane, SEEDS[1] | 1));
        u128::from(a) << 64 | u128::from(b)
    }
}

impl Hasher for StateHasher {
    fn finish(&self) -> u64 {
        self.lanes[0]
    }
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
    }
    fn write_u8(&mut self, number: u8) {
        self.word(number.into());
    }
    fn write_u16(&mut self, number: u16) {
        self.word(number.into());
    }
    fn write_u32(&mut self, number: u32) {
        self.word(number.into());
    }
    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }
    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }
    fn write_u128(&mut self, number: u128) {
        match TimeMark::read(number) {
            // The number of words before a time tells where the time belongs among them.
            Some(TimeMark::Time(time)) => self.times.push(time.0),
            Some(TimeMark::Span(_)) => {}
            None => {
                self.word(number as u64);
                self.word((number >> 64) as u64);
            }
        }
    }
}

/// Folds the two halves of a product into one word.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Fingerprints whose order does not matter are added. Each is mixed first, so that sums do not cancel.
pub fn mixed(fingerprint: Fingerprint) -> Fingerprint {
    let mut hasher = StateHasher::default();
    hasher.write_u64(fingerprint as u64);
    hasher.write_u64((fingerprint >> 64) as u64);
    hasher.fingerprint(Time::ZERO)
}

#[cfg(test)]
mod tests {
    use std::hash::Hash;

    use super::*;
    use tributary_proto::contract::time::Span;

    fn of(state: impl Hash, now: u64) -> Fingerprint {
        let mut hasher = StateHasher::default();
        state.hash(&mut hasher);
        hasher.fingerprint(Time(now))
    }

    #[test]
    fn of_times_only_the_order_is_kept_and_of_spans_nothing() {
        let state = |a, b| (7u32, Time(a), Span(a), Time(b));
        assert_eq!(of(state(10, 20), 15), of(state(1, 900), 3));
        assert_ne!(of(state(10, 20), 15), of(state(20, 10), 15), "another order");
        assert_ne!(of(state(10, 20), 15), of(state(10, 20), 25), "one that was to come is past");
        assert_ne!(of(state(10, 20), 15), of(state(20, 20), 15), "equal times are not apart");
    }

    #[test]
    fn everything_else_is_distinguished() {
        let mut seen = std::collections::BTreeSet::new();
        for number in 0u32..50_000 {
            assert!(seen.insert(of(number, 0)), "{number}");
            assert!(seen.insert(of((number, 1u8), 0)), "{number} and more");
        }
        assert_ne!(of([1u8, 0].as_slice(), 0), of([1u8].as_slice(), 0));
        assert_ne!(of((vec![1u8], vec![2u8, 3]), 0), of((vec![1u8, 2], vec![3u8]), 0));
    }
}
