//! The value of each range of a tensor, where nearly all blocks have the same value in the end: one bit for each of
//! these blocks, and ranges for the others.

use std::ops::Range;

use super::coverage::Coverage;

/// A map from elements to `V` that keeps one value, `uniform`, in little memory.
#[derive(Clone, Debug, Hash)]
pub(super) struct Ledger<V> {
    uniform: V,
    elements: usize,
    /// Elements of a block, taken from the first range that was set; 0 before.
    block: usize,
    /// One bit for each block with the uniform value.
    bits: Vec<u64>,
    /// The values that no bit holds.
    others: Coverage<V>,
}

impl<V: Copy + PartialEq> Ledger<V> {
    pub(super) fn new(elements: usize, uniform: V) -> Ledger<V> {
        Ledger { uniform, elements, block: 0, bits: Vec::new(), others: Coverage::new() }
    }

    /// Sets the value of a range, which replaces all earlier values of its elements.
    pub(super) fn set(&mut self, range: Range<usize>, value: V) {
        if range.is_empty() {
            return;
        }
        if self.block == 0 {
            self.block = range.len();
        }
        match self.index(&range) {
            Some(index) if value == self.uniform => {
                self.others.clear(range);
                self.mark(index);
            }
            _ => {
                self.unsettle(&range);
                self.others.set(range, value);
            }
        }
    }

    /// The value that every element of the range has; `None` if they differ or any has none.
    pub(super) fn get(&self, range: &Range<usize>) -> Option<V> {
        let mut blocks = self.blocks(range);
        match blocks.clone().any(|index| self.is_marked(index)) {
            false => self.others.get(range),
            true if blocks.all(|index| self.is_marked(index)) => Some(self.uniform),
            true => self.ranges().get(range),
        }
    }

    /// True if any element of the range has a value.
    pub(super) fn touches(&self, range: &Range<usize>) -> bool {
        self.blocks(range).any(|index| self.is_marked(index)) || self.others.touches(range)
    }

    /// All values as ranges.
    pub(super) fn ranges(&self) -> Coverage<V> {
        let mut ranges = self.others.clone();
        let mut index = 0;
        while index < 64 * self.bits.len() {
            let len = (index..64 * self.bits.len()).take_while(|&index| self.is_marked(index)).count();
            if len > 0 {
                ranges.set(index * self.block..self.elements.min((index + len) * self.block), self.uniform);
            }
            index += len + 1;
        }
        ranges
    }

    /// The block that is exactly this range, if there is one.
    fn index(&self, range: &Range<usize>) -> Option<usize> {
        let index = self.block_at(range.start);
        let start = index * self.block;
        (*range == (start..self.elements.min(start + self.block))).then_some(index)
    }

    /// The blocks that a range has elements of.
    fn blocks(&self, range: &Range<usize>) -> Range<usize> {
        if range.is_empty() || self.block == 0 {
            return 0..0;
        }
        let first = self.block_at(range.start);
        let end = if range.end <= (first + 1) * self.block { first } else { self.block_at(range.end - 1) };
        first..end + 1
    }

    /// Tensors have fewer than 2^32 elements, and short divisions are fast.
    fn block_at(&self, element: usize) -> usize {
        (element as u32 / self.block as u32) as usize
    }

    fn is_marked(&self, index: usize) -> bool {
        self.bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    fn mark(&mut self, index: usize) {
        if self.bits.len() <= index / 64 {
            self.bits.resize(index / 64 + 1, 0);
        }
        self.bits[index / 64] |= 1 << (index % 64);
    }

    /// Turns uniform blocks into ranges, if the range has elements of them.
    fn unsettle(&mut self, range: &Range<usize>) {
        for index in self.blocks(range) {
            if self.is_marked(index) {
                self.bits[index / 64] &= !(1 << (index % 64));
                let start = index * self.block;
                self.others.set(start..self.elements.min(start + self.block), self.uniform);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with one value for each element. Value 0 is uniform; many ranges are blocks of 4.
        #[test]
        fn agrees_with_a_plain_array(
            steps in prop::collection::vec(
                (prop_oneof![(0usize..13).prop_map(|block| (4 * block, 4)), (0usize..40, 1usize..12)], 0u8..3),
                0..40,
            ),
        ) {
            let mut plain = [None; 50];
            let mut ledger = Ledger::new(50, 0);
            for ((start, len), value) in steps {
                let range = start..(start + len).min(50);
                plain[range.clone()].fill(Some(value));
                ledger.set(range, value);
            }
            for start in 0..50 {
                for range in [start..start + 1, start..(start + 4).min(50), start..(start + 9).min(50)] {
                    let values = &plain[range.clone()];
                    let same = values.iter().all(|value| value == &values[0]);
                    prop_assert_eq!(ledger.get(&range), if same { values[0] } else { None });
                    prop_assert_eq!(ledger.touches(&range), values.iter().any(Option::is_some));
                }
            }
            let mut ranges = [None; 50];
            ledger.ranges().iter().for_each(|(range, value)| ranges[range].fill(Some(value)));
            prop_assert_eq!(ranges, plain);
        }
    }
}
