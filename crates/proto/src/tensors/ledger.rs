//! The value of each range of a tensor, where nearly all blocks have the same value in the end: one bit for each of
//! these blocks, and ranges for the others.

use std::collections::BTreeMap;
use std::ops::Range;

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

// What is known about each range of a tensor's elements, in as few ranges as possible.

/// A map from elements to `V`, which keeps adjacent ranges of equal value as one.
#[derive(Clone, Debug, Hash)]
pub(super) struct Coverage<V> {
    /// Start of each range, with its end and value. Ranges do not overlap.
    ranges: BTreeMap<usize, (usize, V)>,
}

impl<V: Copy + PartialEq> Coverage<V> {
    pub(super) fn new() -> Coverage<V> {
        Coverage { ranges: BTreeMap::new() }
    }

    /// Sets the value of a range, which replaces all earlier values of its elements.
    pub(super) fn set(&mut self, range: Range<usize>, value: V) {
        if range.is_empty() {
            return;
        }
        self.clear(range.clone());
        let Range { mut start, mut end } = range;
        if let Some((&before, &(until, other))) = self.ranges.range(..start).next_back()
            && until == start
            && other == value
        {
            start = before;
        }
        if let Some(&(until, other)) = self.ranges.get(&end)
            && other == value
        {
            self.ranges.remove(&end);
            end = until;
        }
        self.ranges.insert(start, (end, value));
    }

    /// Forgets a range.
    pub(super) fn clear(&mut self, range: Range<usize>) {
        if range.is_empty() || self.ranges.is_empty() {
            return;
        }
        if let Some((&before, &(until, value))) = self.ranges.range(..range.start).next_back()
            && until > range.start
        {
            self.ranges.insert(before, (range.start, value));
            self.ranges.insert(range.start, (until, value));
        }
        while let Some((&start, &(until, value))) = self.ranges.range(range.clone()).next() {
            self.ranges.remove(&start);
            if until > range.end {
                self.ranges.insert(range.end, (until, value));
            }
        }
    }

    /// The value that every element of the range has; `None` if they differ or any has none.
    pub(super) fn get(&self, range: &Range<usize>) -> Option<V> {
        let (_, &(until, value)) = self.ranges.range(..=range.start).next_back()?;
        (until >= range.end).then_some(value)
    }

    /// True if any element of the range has a value.
    pub(super) fn touches(&self, range: &Range<usize>) -> bool {
        self.ranges.range(..range.end).next_back().is_some_and(|(_, &(until, _))| until > range.start)
    }

    /// All ranges in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<usize>, V)> + '_ {
        self.ranges.iter().map(|(&start, &(end, value))| (start..end, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    proptest! {
        /// Compared with one value for each element.
        #[test]
        fn ranges_agree_with_a_plain_array(steps in prop::collection::vec((0usize..40, 0usize..12, prop::option::of(0u8..3)), 0..40)) {
            let mut plain = [None; 64];
            let mut coverage = Coverage::new();
            for (start, len, value) in steps {
                plain[start..start + len].fill(value);
                match value {
                    Some(value) => coverage.set(start..start + len, value),
                    None => coverage.clear(start..start + len),
                }
            }
            for (i, &value) in plain.iter().enumerate() {
                prop_assert_eq!(coverage.get(&(i..i + 1)), value);
                prop_assert_eq!(coverage.touches(&(i..i + 1)), value.is_some());
            }
            let ranges = plain.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()).count();
            prop_assert_eq!(coverage.iter().count(), ranges, "neighbours of equal value are one range");
        }
    }
}
