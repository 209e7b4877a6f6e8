//! Who is added to whom: what the bits of a sum follow from, where a protocol promises that they follow from anything.

/// What sums: a rank's data, or a switch's sum over its children in the order of their places.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SumTree {
    /// A rank.
    Rank(u16),
    /// A switch; at least one child.
    Switch(Vec<SumTree>),
}

impl SumTree {
    /// One switch over all ranks, in their order.
    pub fn star(world: u16) -> SumTree {
        SumTree::Switch((0..world).map(SumTree::Rank).collect())
    }

    /// Every switch has a child.
    pub fn is_sound(&self) -> bool {
        match self {
            SumTree::Rank(_) => true,
            SumTree::Switch(children) => !children.is_empty() && children.iter().all(SumTree::is_sound),
        }
    }
}

/// Which tree a job's sums are combined along, whatever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumOrder {
    /// None: vectors are combined as they come.
    Arrival,
    /// The tree of its switches.
    Switches,
    /// That of one switch over all ranks, whatever the switches.
    Ranks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_without_children_sums_nothing() {
        assert!(SumTree::Rank(3).is_sound() && SumTree::star(2).is_sound());
        assert!(!SumTree::Switch(vec![SumTree::star(2), SumTree::Switch(Vec::new())]).is_sound());
    }
}
