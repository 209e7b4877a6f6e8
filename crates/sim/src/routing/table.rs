//! The routes of a simulated network: [`tributary_control::routes`], with links in place of cables.

use std::ops::Deref;

use tributary_control::routes::Routes;

use crate::topology::Graph;
use crate::topology::LinkId;

pub use tributary_control::routes::NextHops;

/// Next hops from every switch to every other; hosts are found through their switches.
pub struct Table(Routes);

impl Table {
    /// Shortest paths over the links that `usable` allows.
    pub fn new(graph: &Graph, usable: impl Fn(LinkId) -> bool) -> Table {
        let link = |cable: usize, from| LinkId((2 * cable + usize::from(graph.edges()[cable].a != from)) as u32);
        Table(Routes::new(&graph.cabling(), |cable, from| usable(link(cable, from))))
    }
}

impl Deref for Table {
    type Target = Routes;
    fn deref(&self) -> &Routes {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Clos, leaf_spine};
    use crate::topology::{LinkSpec, Rate};
    use tributary_proto::contract::ids::NodeId;
    use tributary_proto::contract::time::Span;

    const SPEC: LinkSpec =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span(1_000_000), queue_bytes: 1 << 20, mark_bytes: None };

    #[test]
    fn a_leaf_goes_up_by_any_spine_and_down_by_one_port() {
        let graph = leaf_spine(4, 3, 2, SPEC, SPEC, Span::ZERO);
        let table = Table::new(&graph, |_| true);
        assert_eq!(table.next_hops(0, NodeId(1)).0, [1], "its own host");
        assert_eq!(table.next_hops(0, NodeId(7)).0, [2, 3, 4], "a host of another leaf");
        assert_eq!(table.next_hops(5, NodeId(7)).0, [3], "down from a spine");
        assert_eq!(table.next_hops(0, graph.switch(5)).0, [3], "to one spine");
        assert_eq!(table.next_hops(0, graph.switch(0)).0, [0u16; 0], "to itself");
    }

    #[test]
    fn a_fat_tree_goes_up_only_as_far_as_needed() {
        let graph = Clos::fat_tree(4).graph(SPEC, SPEC, SPEC, Span::ZERO);
        let table = Table::new(&graph, |_| true);
        assert_eq!(table.next_hops(0, NodeId(2)).0, [2, 3], "same pod: any aggregation switch");
        assert_eq!(table.next_hops(8, NodeId(2)).0, [1], "and down again from there");
        assert_eq!(table.next_hops(8, NodeId(15)).0, [2, 3], "another pod: any core switch");
    }

    #[test]
    fn dead_links_are_avoided() {
        let graph = leaf_spine(2, 2, 1, SPEC, SPEC, Span::ZERO);
        // Edge 2 joins leaf 0 and spine 0.
        let table = Table::new(&graph, |link| link.index() / 2 != 2);
        assert_eq!(table.next_hops(0, NodeId(1)).0, [2]);
        assert_eq!(table.next_hops(1, NodeId(0)).0, [2]);
    }
}
