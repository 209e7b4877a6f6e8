//! Sets of a job's ranks.

use crate::contract::ids::Rank;

/// A set of ranks.
#[derive(Clone, Debug, Default, Hash)]
pub struct Ranks {
    words: Vec<u64>,
    count: u16,
}

impl Ranks {
    /// An empty set, for a job of this many ranks.
    pub fn new(world_size: u16) -> Ranks {
        Ranks { words: vec![0; usize::from(world_size).div_ceil(64)], count: 0 }
    }

    /// Adds a rank of the job; false if the set had it already.
    pub fn insert(&mut self, rank: Rank) -> bool {
        let (word, bit) = (&mut self.words[rank.index() / 64], 1 << (rank.index() % 64));
        let fresh = *word & bit == 0;
        *word |= bit;
        self.count += u16::from(fresh);
        fresh
    }

    /// True if the rank is in the set.
    pub fn contains(&self, rank: Rank) -> bool {
        self.words[rank.index() / 64] >> (rank.index() % 64) & 1 != 0
    }

    /// The number of ranks in the set.
    pub fn len(&self) -> u16 {
        self.count
    }

    /// True if the set has no rank.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes all ranks.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// True if some rank is in both sets.
    pub fn overlaps(&self, other: &Ranks) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// True if all ranks of the other set are in this one.
    pub fn contains_all(&self, other: &Ranks) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| b & !a == 0)
    }

    /// Adds all ranks of another set of the same job.
    pub fn insert_all(&mut self, other: &Ranks) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            self.count += (more & !*word).count_ones() as u16;
            *word |= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranks: &[u16]) -> Ranks {
        let mut set = Ranks::new(130);
        ranks.iter().for_each(|&rank| assert!(set.insert(Rank(rank))));
        set
    }

    #[test]
    fn sets_are_joined_and_compared_whatever_word_a_rank_is_in() {
        let mut some = set(&[0, 63, 64]);
        let others = set(&[64, 129]);
        assert!(some.overlaps(&others) && !some.overlaps(&set(&[1, 128])));
        assert!(!some.contains_all(&others) && some.contains_all(&set(&[])));
        some.insert_all(&others);
        assert_eq!((some.len(), some.contains(Rank(129))), (4, true));
        assert!(some.contains_all(&others) && !some.insert(Rank(63)));
    }
}
