//! The result of a complete block, in the form in which its readers get it.

use super::OrderedAccumulator;
use super::rule::{Rule, Scaled};

impl OrderedAccumulator {
    /// Writes a complete block's result for hosts, as long as their vectors were.
    pub fn load(&self, block: usize, vector: &mut [u8]) {
        let lanes = self.result(block);
        match *self.rule(block) {
            Rule { is_replaced: true, .. } => vector.copy_from_slice(&lanes[..vector.len()]),
            Rule { own: Some(number), .. } => self.own.load(number, self.node(block, 0), vector),
            Rule { scaled: Some(Scaled { kernels, scale, op }), .. } => (kernels.load)(lanes, vector, scale, op),
            Rule { combine, .. } => (combine.load)(lanes, vector),
        }
    }

    /// Writes one of the vectors of a complete block for a switch above; vectors are in the order of their ranks.
    pub fn load_root(&self, block: usize, root: usize, partial: &mut [u8]) {
        let buffer = self.forest.as_ref().map_or(0, |forest| forest.branches[forest.roots[root]].buffer);
        self.load_node(block, buffer, partial);
    }

    /// Writes a complete block for a switch above.
    pub fn load_partial(&self, block: usize, partial: &mut [u8]) {
        self.load_node(block, 0, partial);
    }

    fn load_node(&self, block: usize, slot: usize, partial: &mut [u8]) {
        match *self.rule(block) {
            Rule { own: Some(number), is_replaced: false, .. } => {
                self.own.load(number, self.node(block, slot), partial);
            }
            Rule { combine, .. } => (combine.load_partial)(&self.memory()[self.lanes(block, slot)], partial),
        }
    }
}
