//! The order in which operands are added. The bits of a sum follow from it, if a protocol promises such an order.

/// An operand: a rank's data, or a switch's sum over its children, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SumTree {
    /// A rank.
    Rank(u16),
    /// A switch; at least one child.
    Switch(Vec<SumTree>),
}

impl SumTree {
    /// One switch over all ranks, in their order.
    pub fn star(world_size: u16) -> SumTree {
        SumTree::Switch((0..world_size).map(SumTree::Rank).collect())
    }

    /// True if every switch has a child.
    pub fn is_sound(&self) -> bool {
        match self {
            SumTree::Rank(_) => true,
            SumTree::Switch(children) => !children.is_empty() && children.iter().all(SumTree::is_sound),
        }
    }
}

/// The tree along which a job's sums are combined, in whatever order packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumOrder {
    /// No tree: vectors are combined as they come.
    Arrival,
    /// The tree of the job's switches.
    Switches,
    /// The tree of one switch over all ranks, whatever the job's switches are.
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
