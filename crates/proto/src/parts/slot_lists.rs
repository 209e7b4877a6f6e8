//! Several lists of slots in a fixed memory: each slot is in one list or in none. Everything is O(1).
//!
//! Lists that are appended to at each send are ordered by age, so that the oldest is always at the front: all that a
//! retransmission timer needs.

const NONE: u16 = u16::MAX;

#[derive(Clone, Copy)]
struct Link {
    list: u16,
    next: u16,
    prev: u16,
}

#[derive(Clone, Copy)]
struct Ends {
    first: u16,
    last: u16,
}

/// A number of doubly linked lists over slots 0 to `slots` - 1.
pub struct SlotLists {
    links: Vec<Link>,
    lists: Vec<Ends>,
}

impl SlotLists {
    /// Empty lists. At most 65,535 slots and as many lists.
    pub fn new(lists: usize, slots: u16) -> SlotLists {
        SlotLists {
            links: vec![Link { list: NONE, next: NONE, prev: NONE }; usize::from(slots)],
            lists: vec![Ends { first: NONE, last: NONE }; lists],
        }
    }

    /// The slot at the front.
    pub fn first(&self, list: usize) -> Option<u16> {
        let first = self.lists[list].first;
        (first != NONE).then_some(first)
    }

    /// The slot behind `slot` in its list.
    pub fn next(&self, slot: u16) -> Option<u16> {
        let next = self.links[usize::from(slot)].next;
        (next != NONE).then_some(next)
    }

    /// The list that a slot is in.
    pub fn list_of(&self, slot: u16) -> Option<usize> {
        let list = self.links[usize::from(slot)].list;
        (list != NONE).then_some(usize::from(list))
    }

    /// Appends a slot, which leaves the list that it was in.
    pub fn push(&mut self, list: usize, slot: u16) {
        self.remove(slot);
        let last = self.lists[list].last;
        self.links[usize::from(slot)] = Link { list: list as u16, next: NONE, prev: last };
        match last {
            NONE => self.lists[list].first = slot,
            last => self.links[usize::from(last)].next = slot,
        }
        self.lists[list].last = slot;
    }

    /// Takes a slot out of the list that it is in, if any.
    pub fn remove(&mut self, slot: u16) {
        let Link { list, next, prev } = self.links[usize::from(slot)];
        if list == NONE {
            return;
        }
        match prev {
            NONE => self.lists[usize::from(list)].first = next,
            prev => self.links[usize::from(prev)].next = next,
        }
        match next {
            NONE => self.lists[usize::from(list)].last = prev,
            next => self.links[usize::from(next)].prev = prev,
        }
        self.links[usize::from(slot)].list = NONE;
    }

    /// Moves all slots of `from`, in their order, to the front of `to`. O(length of `from`).
    pub fn prepend(&mut self, from: usize, to: usize) {
        let Ends { first, last } = std::mem::replace(&mut self.lists[from], Ends { first: NONE, last: NONE });
        if first == NONE {
            return;
        }
        let mut slot = first;
        while slot != NONE {
            self.links[usize::from(slot)].list = to as u16;
            slot = self.links[usize::from(slot)].next;
        }
        let behind = self.lists[to].first;
        self.links[usize::from(last)].next = behind;
        match behind {
            NONE => self.lists[to].last = last,
            behind => self.links[usize::from(behind)].prev = last,
        }
        self.lists[to].first = first;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(lists: &SlotLists, list: usize) -> Vec<u16> {
        std::iter::successors(lists.first(list), |&slot| lists.next(slot)).collect()
    }

    proptest! {
        #[test]
        fn behaves_as_vectors_do(steps in prop::collection::vec((0..4u8, 0..3usize, 0..8u16), 0..200)) {
            let mut lists = SlotLists::new(3, 8);
            let mut model = vec![Vec::new(); 3];
            for (step, list, slot) in steps {
                match step {
                    0 | 1 => {
                        lists.push(list, slot);
                        model.iter_mut().for_each(|list: &mut Vec<u16>| list.retain(|&other| other != slot));
                        model[list].push(slot);
                    }
                    2 => {
                        lists.remove(slot);
                        model.iter_mut().for_each(|list| list.retain(|&other| other != slot));
                    }
                    _ => {
                        let to = (list + 1) % 3;
                        lists.prepend(list, to);
                        let mut moved = std::mem::take(&mut model[list]);
                        moved.append(&mut model[to]);
                        model[to] = moved;
                    }
                }
                for (list, expected) in model.iter().enumerate() {
                    prop_assert_eq!(&contents(&lists, list), expected);
                    for &slot in expected {
                        prop_assert_eq!(lists.list_of(slot), Some(list));
                    }
                }
            }
        }
    }
}
