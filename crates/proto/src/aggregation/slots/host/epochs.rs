//! Staggered sending (Flare §5): each rank sends its blocks in an order of its own, so that the packets of one block
//! reach a switch at different times.
//!
//! The paper rotates whole tensors and never says what happens to its own window: rank `c` would fill its slots with
//! blocks that no other rank can have sent, and all ranks would wait for one another. Here the stream is cut
//! into *epochs* of half the pool, and each rank rotates each epoch by its share of it. An epoch has the slots of the
//! epoch before the last one, whose results are on their way while the last one is sent. Every rank ends an epoch
//! before it begins the next, so no two blocks wait for each other.

/// A host's own order of blocks.
#[derive(Clone, Hash)]
pub struct Epochs {
    /// The first block of the epoch.
    base: u64,
    /// Where in each epoch this host begins.
    shift: u64,
    /// The blocks of the epoch that were sent.
    sent: Vec<bool>,
    /// The number of blocks of the epoch that were not sent.
    left: usize,
    /// All blocks before this position in the host's own order were sent.
    from: u64,
}

impl Epochs {
    /// The order for a pool of this many slots, of one of `world_size` ranks.
    pub fn new(slots: u16, rank: u16, world_size: u16) -> Epochs {
        let len = (u64::from(slots) / 2).max(1);
        let shift = u64::from(rank) * len / u64::from(world_size.max(1));
        Epochs { base: 0, shift, sent: vec![false; len as usize], left: len as usize, from: 0 }
    }

    /// The next block to send. Of the submitted blocks, it is the next in the host's own order, if its slot is free. A
    /// block that is submitted later has its turn later, and the next epoch begins when all blocks of this one were
    /// sent.
    pub fn next(&mut self, is_submitted: impl Fn(u64) -> bool, is_free: impl Fn(u64) -> bool) -> Option<u64> {
        let len = self.sent.len() as u64;
        let position = |at: u64| ((self.shift + at) % len) as usize;
        let waits = |&at: &u64| !self.sent[position(at)] && is_submitted(self.base + position(at) as u64);
        let at = (self.from..len).find(waits)?;
        let (position, block) = (position(at), self.base + position(at) as u64);
        if !is_free(block) {
            return None;
        }
        self.sent[position] = true;
        self.left -= 1;
        if at == self.from {
            self.from += 1;
        }
        if self.left == 0 {
            self.base += len;
            (self.from, self.left) = (0, self.sent.len());
            self.sent.fill(false);
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All blocks that may be sent now.
    fn ready(epochs: &mut Epochs, submitted: u64, free: u64) -> Vec<u64> {
        std::iter::from_fn(|| epochs.next(|block| block < submitted, |block| block < free)).collect()
    }

    #[test]
    fn each_rank_begins_each_epoch_at_its_own_position() {
        let first = |rank| ready(&mut Epochs::new(8, rank, 4), 8, 8);
        assert_eq!(first(0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(first(1), [1, 2, 3, 0, 5, 6, 7, 4]);
        assert_eq!(first(3), [3, 0, 1, 2, 7, 4, 5, 6]);
    }

    #[test]
    fn a_slot_that_is_not_free_holds_up_what_comes_after_it() {
        let mut epochs = Epochs::new(8, 1, 4);
        assert_eq!(ready(&mut epochs, 16, 5), [1, 2, 3, 0]);
        assert_eq!(ready(&mut epochs, 16, 7), [5, 6]);
        assert_eq!(ready(&mut epochs, 16, 8), [7, 4]);
    }

    #[test]
    fn blocks_that_are_submitted_later_have_their_turn_later() {
        let mut epochs = Epochs::new(8, 1, 4);
        assert_eq!(ready(&mut epochs, 2, 8), [1, 0]);
        assert_eq!(ready(&mut epochs, 3, 8), [2]);
        assert_eq!(ready(&mut epochs, 6, 8), [3, 5, 4]);
    }

    #[test]
    fn a_pool_of_one_slot_has_epochs_of_one_block() {
        let mut epochs = Epochs::new(1, 2, 3);
        assert_eq!(ready(&mut epochs, 3, 1), [0]);
        assert_eq!(ready(&mut epochs, 3, 2), [1]);
    }
}
