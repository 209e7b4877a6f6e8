//! Collectives side by side in a stream of blocks, one for each tree: each has the blocks whose slots are its tree's.
//!
//! If every rank is the server of its own tree, a reduce-scatter is a reduce for each rank, and each block is summed at
//! the rank that wants it. One after the other these reduces would use one server at a time, so they share a stretch of
//! the stream. Where one of them has fewer blocks than the stretch has for it, the rest belong to no collective, and
//! slots pass over them.

/// The blocks of a stretch that one collective has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stripe {
    /// The tree, which is also the collective's position among those of the stretch.
    pub tree: u64,
    /// How many collectives share the stretch.
    pub trees: u64,
    /// The slots of a tree, of which all have equally many.
    slots: u64,
    /// The first block of the stretch.
    start: u64,
    /// How many blocks the collective has.
    blocks: u64,
}

impl Stripe {
    /// The stripes of collectives with these numbers of blocks, over a pool of `slots` for each of their trees, in a
    /// stretch that begins at a block; and its length.
    pub fn cut(slots: u64, start: u64, blocks: &[u64]) -> (Vec<Stripe>, u64) {
        let trees = blocks.len() as u64;
        let stripe = |(tree, &blocks): (usize, &u64)| Stripe { tree: tree as u64, trees, slots, start, blocks };
        let stripes: Vec<Stripe> = blocks.iter().enumerate().map(stripe).collect();
        let end = stripes.iter().map(Stripe::end).max().unwrap_or(start);
        (stripes, end - start)
    }

    /// The tree of a block.
    pub fn tree_of(&self, block: u64) -> u64 {
        block / self.slots % self.trees
    }

    /// The number of a block of this tree within the collective.
    pub fn local(&self, block: u64) -> u64 {
        self.count(block) - self.count(self.start)
    }

    /// True if the collective has this block of the stretch.
    pub fn has(&self, block: u64) -> bool {
        self.tree_of(block) == self.tree && self.local(block) < self.blocks
    }

    /// How many of the tree's blocks come before a block.
    fn count(&self, block: u64) -> u64 {
        let (pool, first) = (self.slots * self.trees, self.slots * self.tree);
        block / pool * self.slots + (block % pool).clamp(first, first + self.slots) - first
    }

    /// The block behind the collective's last.
    fn end(&self) -> u64 {
        let last = self.count(self.start) + self.blocks - 1;
        (last / self.slots * self.trees + self.tree) * self.slots + last % self.slots + 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reliability::slot_lists::tree_at;

    proptest! {
        #[test]
        fn each_collective_has_its_blocks_in_the_slots_of_its_tree(
            slots in 1..5u64,
            start in 0..40u64,
            blocks in prop::collection::vec(1..12u64, 1..5),
        ) {
            let trees = blocks.len() as u64;
            let (stripes, len) = Stripe::cut(slots, start, &blocks);
            prop_assert!(stripes.iter().any(|stripe| stripe.has(start + len - 1)), "it ends with a block");
            for (stripe, &blocks) in stripes.iter().zip(&blocks) {
                let of_tree = (start..start + len).filter(|&block| stripe.tree_of(block) == stripe.tree);
                for (number, block) in of_tree.clone().enumerate() {
                    let pool = slots * trees;
                    let tree = tree_at((block % pool) as u16, pool as u16, trees as u16);
                    prop_assert_eq!(u64::from(tree.0), stripe.tree);
                    prop_assert_eq!(stripe.local(block), number as u64);
                }
                prop_assert_eq!(of_tree.filter(|&block| stripe.has(block)).count() as u64, blocks);
            }
        }
    }
}
