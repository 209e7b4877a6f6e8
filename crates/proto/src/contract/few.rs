//! A few things by their numbers, in one piece of memory: what a switch looks through for every packet.

/// A map of few entries, in the order of their keys.
pub(super) struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Few<K, V> {
        Few(Vec::new())
    }
}

impl<K: Copy + Ord, V> Few<K, V> {
    fn find(&self, key: K) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |&(key, _)| key)
    }

    /// Puts something in, in place of what had the key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.find(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Takes something out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    /// What has the key.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    /// All with their keys.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// All.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The same, to be changed.
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
        fn behaves_as_a_map_does(steps in prop::collection::vec((0u8..6, prop::option::of(0u8..9)), 0..40)) {
            let (mut few, mut map) = (Few::default(), BTreeMap::new());
            for (key, value) in steps {
                match value {
                    Some(value) => {
                        few.insert(key, value);
                        map.insert(key, value);
                    }
                    None => prop_assert_eq!(few.remove(key), map.remove(&key)),
                }
                prop_assert_eq!(few.get(key), map.get(&key));
                prop_assert_eq!(few.get_mut(key), map.get_mut(&key));
                prop_assert!(few.iter().eq(map.iter().map(|(&key, value)| (key, value))));
                prop_assert!(few.values().eq(map.values()) && few.values_mut().eq(map.values_mut()));
            }
        }
    }
}
