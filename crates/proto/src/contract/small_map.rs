//! A map for a handful of entries, as a sorted vector: a switch searches it for every packet.

/// A map for a handful of entries, in the order of their keys.
pub(super) struct SmallMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> SmallMap<K, V> {
        SmallMap(Vec::new())
    }
}

impl<K: Copy + Ord, V> SmallMap<K, V> {
    fn find(&self, key: K) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |&(key, _)| key)
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.find(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: K) -> Option<V> {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// The value of a key, mutable.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    /// All entries.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// All values.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// All values, mutable.
    #[inline]
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_btree_map(steps in prop::collection::vec((0u8..6, prop::option::of(0u8..9)), 0..40)) {
            let (mut small, mut map) = (SmallMap::default(), BTreeMap::new());
            for (key, value) in steps {
                match value {
                    Some(value) => {
                        small.insert(key, value);
                        map.insert(key, value);
                    }
                    None => prop_assert_eq!(small.remove(key), map.remove(&key)),
                }
                prop_assert_eq!(small.get(key), map.get(&key));
                prop_assert_eq!(small.get_mut(key), map.get_mut(&key));
                prop_assert!(small.iter().eq(map.iter().map(|(&key, value)| (key, value))));
                prop_assert!(small.values().eq(map.values()) && small.values_mut().eq(map.values_mut()));
            }
        }
    }
}
