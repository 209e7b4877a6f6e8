//! The home of a block: the subset of cores that handles its packets (Flare §5, hierarchical scheduling). The paper assigns
//! "packets belonging to the same block with an FCFS policy to the same subset of cores, and different blocks to
//! different subsets", and does not say which subset a block gets.

use std::collections::BTreeMap;

use super::Packet;

/// Which subset a block gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assignment {
    /// By its number: blocks take the subsets in turn. Late packets of a block that has ended find the same subset.
    #[default]
    ByNumber,
    /// As its first packet comes: the subset with the fewest blocks that have not ended. No packet of a block may come
    /// after the block has ended.
    FirstCome,
}

/// The homes of all blocks.
pub(super) struct Homes {
    assignment: Assignment,
    /// Of blocks that have not ended, if they have homes by who came first.
    of_blocks: BTreeMap<(u32, u64), u32>,
    /// How many blocks that have not ended each subset has.
    blocks: Vec<u32>,
}

impl Homes {
    pub fn new(assignment: Assignment, subsets: u32) -> Homes {
        Homes { assignment, of_blocks: BTreeMap::new(), blocks: vec![0; subsets as usize] }
    }

    /// The home of a packet's block, which may begin with the packet.
    pub fn of(&mut self, packet: &Packet) -> u32 {
        if self.assignment == Assignment::ByNumber {
            return (packet.block % self.blocks.len() as u64) as u32;
        }
        let fewest = |blocks: &[u32]| (0..blocks.len()).min_by_key(|&subset| blocks[subset]).unwrap_or(0);
        *self.of_blocks.entry(packet.key()).or_insert_with(|| {
            let subset = fewest(&self.blocks);
            self.blocks[subset] += 1;
            subset as u32
        })
    }

    /// A packet's block has ended.
    pub fn end(&mut self, packet: &Packet) {
        if let Some(subset) = self.of_blocks.remove(&packet.key()) {
            self.blocks[subset as usize] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::model::{Costs, Design, Handling, Modelled};
    use crate::cores::{Shape, Subset};

    #[test]
    fn blocks_whose_numbers_have_one_home_wait_for_each_other_unless_who_comes_first_chooses() {
        let costs = Costs { combine: 10, ..Costs::default() };
        let handling = Handling { design: Design::Unbuffered, children: 1, buffer_bytes: 0, costs };
        for (assignment, waiting) in [(Assignment::ByNumber, 1), (Assignment::FirstCome, 0)] {
            let shape = Shape { assignment, ..Shape::ideal(1, 2, Subset::Core) };
            let mut processor = Modelled::new(shape, handling);
            [0, 2].into_iter().for_each(|block| processor.arrive(0, block, 0, 1).unwrap());
            assert_eq!(processor.advance(100).len(), 2);
            assert_eq!(processor.longest_queue(), waiting, "{assignment:?}");
        }
    }

    #[test]
    fn by_number_a_block_has_the_same_home_whatever_else_is_there() {
        let mut homes = Homes::new(Assignment::ByNumber, 3);
        assert_eq!([0, 3, 4, 3].map(|block| homes.of(&Packet::new(block, 0, 1))), [0, 0, 1, 0]);
    }

    #[test]
    fn who_comes_first_has_the_subset_with_the_fewest_blocks_until_the_block_ends() {
        let mut homes = Homes::new(Assignment::FirstCome, 2);
        let [a, b, c, d] = [0, 2, 4, 6].map(|block| Packet::new(block, 0, 1));
        assert_eq!([&a, &b, &a, &c].map(|packet| homes.of(packet)), [0, 1, 0, 0]);
        homes.end(&a);
        assert_eq!(homes.of(&c), 0, "a block stays where its buffers are");
        homes.end(&c);
        assert_eq!(homes.of(&d), 0, "which has no block now");
        assert_eq!(homes.of_blocks.len(), 2);
    }
}
