//! What is known about each range of a tensor's elements, in as few ranges as possible.

use std::collections::BTreeMap;
use std::ops::Range;

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
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with one value for each element.
        #[test]
        fn agrees_with_a_plain_array(steps in prop::collection::vec((0usize..40, 0usize..12, prop::option::of(0u8..3)), 0..40)) {
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
