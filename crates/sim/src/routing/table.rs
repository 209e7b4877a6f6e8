//! For every switch and every destination, the ports that lie on a shortest path.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::ids::NodeId;

use crate::net::LinkId;
use crate::topology::Graph;

/// The ports of one switch that lie on shortest paths to a destination, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHops<'a>(pub &'a [u16]);

#[derive(Clone, Copy)]
struct Group {
    start: u32,
    len: u16,
}

/// Next hops from every switch to every other; hosts are found through their switch.
pub struct Table {
    hosts: u32,
    switches: u32,
    /// For each host its switch, as an index, and the port there.
    attachment: Vec<(u32, u16)>,
    /// For each pair of switches a group; row by row.
    groups_of: Vec<u16>,
    /// For each switch, where its groups begin.
    first_group: Vec<u32>,
    groups: Vec<Group>,
    ports: Vec<u16>,
}

impl Table {
    /// Shortest paths over the links that `usable` allows.
    pub fn new(graph: &Graph, usable: impl Fn(LinkId) -> bool) -> Table {
        let switches = graph.switches() as usize;
        let (first_port, links) = graph.ports();
        let neighbours = Neighbours::new(graph, &first_port, &links, &usable);
        let mut builder =
            GroupBuilder { groups_of: vec![0; switches * switches], own: vec![BTreeMap::new(); switches] };
        for target in 0..switches {
            builder.add_target(&neighbours, target);
        }
        let mut table = Table {
            hosts: graph.hosts(),
            switches: graph.switches(),
            attachment: attachments(graph, &first_port, &links),
            groups_of: builder.groups_of,
            first_group: Vec::with_capacity(switches),
            groups: Vec::new(),
            ports: Vec::new(),
        };
        for own in builder.own {
            table.first_group.push(table.groups.len() as u32);
            let mut ordered: Vec<_> = own.into_iter().collect();
            ordered.sort_by_key(|&(_, index)| index);
            for (ports, _) in ordered {
                table.groups.push(Group { start: table.ports.len() as u32, len: ports.len() as u16 });
                table.ports.extend(ports);
            }
        }
        table
    }

    /// The ports of switch number `switch` towards a node; none if the node is that switch or out of reach.
    #[inline]
    pub fn next_hops(&self, switch: u32, to: NodeId) -> NextHops<'_> {
        let target = match self.attachment.get(to.index()) {
            Some(&(own, ref port)) if own == switch => return NextHops(std::slice::from_ref(port)),
            Some(&(own, _)) => own,
            None => to.0 - self.hosts,
        };
        let group = self.groups_of[(switch * self.switches + target) as usize];
        let group = self.groups[(self.first_group[switch as usize] + u32::from(group)) as usize];
        NextHops(&self.ports[group.start as usize..group.start as usize + usize::from(group.len)])
    }

    /// The switch that a host is connected to, and the port there.
    pub fn attachment(&self, host: NodeId) -> (u32, u16) {
        self.attachment[host.index()]
    }
}

/// For each switch, the switches next to it: (port, switch), over usable links only.
struct Neighbours(Vec<Vec<(u16, u32)>>);

impl Neighbours {
    fn new(graph: &Graph, first: &[u32], links: &[LinkId], usable: impl Fn(LinkId) -> bool) -> Neighbours {
        let of = |switch: u32| {
            let node = graph.switch(switch).index();
            let own = &links[first[node] as usize..first[node + 1] as usize];
            own.iter()
                .enumerate()
                .filter(|&(_, &link)| usable(link))
                .filter_map(|(port, &link)| Some((port as u16, graph.switch_index(graph.ends(link).1)?)))
                .collect()
        };
        Neighbours((0..graph.switches()).map(of).collect())
    }
}

struct GroupBuilder {
    groups_of: Vec<u16>,
    /// For each switch the sets of ports that it uses, numbered in the order in which they came up.
    own: Vec<BTreeMap<Vec<u16>, u16>>,
}

impl GroupBuilder {
    /// Breadth first from the target. Links are cables, so that distances are the same both ways.
    fn add_target(&mut self, neighbours: &Neighbours, target: usize) {
        let switches = neighbours.0.len();
        let mut distance = vec![u32::MAX; switches];
        let mut reached = VecDeque::from([target]);
        distance[target] = 0;
        while let Some(switch) = reached.pop_front() {
            for &(_, next) in &neighbours.0[switch] {
                if distance[next as usize] == u32::MAX {
                    distance[next as usize] = distance[switch] + 1;
                    reached.push_back(next as usize);
                }
            }
        }
        for switch in 0..switches {
            let closer = |&&(_, next): &&(u16, u32)| {
                distance[switch] != u32::MAX && distance[next as usize].checked_add(1) == Some(distance[switch])
            };
            let ports: Vec<u16> = neighbours.0[switch].iter().filter(closer).map(|&(port, _)| port).collect();
            let fresh = self.own[switch].len() as u16;
            self.groups_of[switch * switches + target] = *self.own[switch].entry(ports).or_insert(fresh);
        }
    }
}

fn attachments(graph: &Graph, first: &[u32], links: &[LinkId]) -> Vec<(u32, u16)> {
    let mut attachment = vec![(u32::MAX, 0); graph.hosts() as usize];
    for switch in 0..graph.switches() {
        let node = graph.switch(switch).index();
        for (port, &link) in links[first[node] as usize..first[node + 1] as usize].iter().enumerate() {
            let (_, to) = graph.ends(link);
            if let Some(place) = attachment.get_mut(to.index()) {
                *place = (switch, port as u16);
            }
        }
    }
    attachment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{LinkSpec, Rate};
    use crate::topology::{Clos, leaf_spine};
    use tributary_proto::time::Span;

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
