//! For every switch and every destination: the ports that lie on a shortest path.
//!
//! In a tree-like network (leaf-spine, fat tree, folded Clos) the shortest paths are the up/down paths. The simulator and
//! the daemons of a fabric both look their next hops up here.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::contract::ids::{NodeId, PortId};

/// Which nodes are connected. Hosts are the nodes `0..hosts` and have one cable each; switches follow. A node's ports
/// are numbered in the order of its cables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cabling {
    /// Number of hosts.
    pub hosts: u32,
    /// Number of switches.
    pub switches: u32,
    /// The two ends of each cable.
    pub cables: Vec<(NodeId, NodeId)>,
}

/// One end of a cable, as the node at that end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The cable.
    pub cable: usize,
    /// The node at the cable's other end.
    pub to: NodeId,
}

impl Cabling {
    /// Number of hosts and switches.
    pub fn nodes(&self) -> usize {
        (self.hosts + self.switches) as usize
    }

    /// The node of switch number `index`.
    pub fn switch(&self, index: u32) -> NodeId {
        NodeId(self.hosts + index)
    }

    /// The number of a switch; `None` for hosts.
    pub fn switch_index(&self, node: NodeId) -> Option<u32> {
        node.0.checked_sub(self.hosts)
    }

    /// The ports of every node, by node.
    pub fn ports(&self) -> Vec<Vec<Port>> {
        let mut ports = vec![Vec::new(); self.nodes()];
        for (cable, &(a, b)) in self.cables.iter().enumerate() {
            ports[a.index()].push(Port { cable, to: b });
            ports[b.index()].push(Port { cable, to: a });
        }
        ports
    }

    /// For each cable, the number of its port at its first and at its second end.
    pub fn port_numbers(&self) -> Vec<[PortId; 2]> {
        let mut next = vec![0u16; self.nodes()];
        let mut port = |node: NodeId| {
            next[node.index()] += 1;
            PortId(next[node.index()] - 1)
        };
        self.cables.iter().map(|&(a, b)| [port(a), port(b)]).collect()
    }
}

/// The ports of one switch that lie on shortest paths to a destination, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHops<'a>(pub &'a [u16]);

#[derive(Clone, Copy, Debug)]
struct Group {
    start: u32,
    len: u16,
}

/// Next hops from every switch to every other switch. Hosts are reached through their switch.
#[derive(Clone, Debug)]
pub struct Routes {
    hosts: u32,
    switches: u32,
    /// For each host: its switch, as an index, and the port at that switch.
    attachment: Vec<(u32, u16)>,
    /// For each pair of switches a group, row by row.
    groups_of: Vec<u16>,
    /// For each switch: where its groups begin.
    first_group: Vec<u32>,
    groups: Vec<Group>,
    ports: Vec<u16>,
}

impl Routes {
    /// Finds the shortest paths over usable cables. `usable` is called for each cable with the end that sends on it.
    pub fn new(cabling: &Cabling, usable: impl Fn(usize, NodeId) -> bool) -> Routes {
        let switches = cabling.switches as usize;
        let all_ports = cabling.ports();
        let neighbours = Neighbours::new(cabling, &all_ports, &usable);
        let mut builder =
            GroupBuilder { groups_of: vec![0; switches * switches], own: vec![BTreeMap::new(); switches] };
        for target in 0..switches {
            builder.add_target(&neighbours, target);
        }
        let mut routes = Routes {
            hosts: cabling.hosts,
            switches: cabling.switches,
            attachment: attachments(cabling, &all_ports),
            groups_of: builder.groups_of,
            first_group: Vec::with_capacity(switches),
            groups: Vec::new(),
            ports: Vec::new(),
        };
        for own in builder.own {
            routes.first_group.push(routes.groups.len() as u32);
            let mut ordered: Vec<_> = own.into_iter().collect();
            ordered.sort_by_key(|&(_, index)| index);
            for (ports, _) in ordered {
                routes.groups.push(Group { start: routes.ports.len() as u32, len: ports.len() as u16 });
                routes.ports.extend(ports);
            }
        }
        routes
    }

    /// The ports of switch number `switch` towards a node; empty if the node is that switch or cannot be reached.
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

    /// The switch that a host is connected to, and the port at that switch.
    pub fn attachment(&self, host: NodeId) -> (u32, u16) {
        self.attachment[host.index()]
    }
}

/// For each switch, the switches next to it: (port, switch), over usable cables only.
struct Neighbours(Vec<Vec<(u16, u32)>>);

impl Neighbours {
    fn new(cabling: &Cabling, ports: &[Vec<Port>], usable: impl Fn(usize, NodeId) -> bool) -> Neighbours {
        let of = |switch: u32| {
            let node = cabling.switch(switch);
            let own = ports[node.index()].iter().enumerate().filter(|(_, port)| usable(port.cable, node));
            own.filter_map(|(number, port)| Some((number as u16, cabling.switch_index(port.to)?))).collect()
        };
        Neighbours((0..cabling.switches).map(of).collect())
    }
}

struct GroupBuilder {
    groups_of: Vec<u16>,
    /// For each switch the sets of ports that it uses, numbered in the order in which they occurred.
    own: Vec<BTreeMap<Vec<u16>, u16>>,
}

impl GroupBuilder {
    /// Searches breadth first from the target. Links are cables, so distances are the same both ways.
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

fn attachments(cabling: &Cabling, ports: &[Vec<Port>]) -> Vec<(u32, u16)> {
    let mut attachment = vec![(u32::MAX, 0); cabling.hosts as usize];
    for switch in 0..cabling.switches {
        for (number, port) in ports[cabling.switch(switch).index()].iter().enumerate() {
            if let Some(attachment) = attachment.get_mut(port.to.index()) {
                *attachment = (switch, number as u16);
            }
        }
    }
    attachment
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts 0 and 1 on switch 0, host 2 on switch 1; switches 2 and 3 connect both.
    fn leaf_spine() -> Cabling {
        let cable = |a, b| (NodeId(a), NodeId(b));
        let cables = vec![cable(0, 3), cable(1, 3), cable(2, 4), cable(3, 5), cable(3, 6), cable(4, 5), cable(4, 6)];
        Cabling { hosts: 3, switches: 4, cables }
    }

    #[test]
    fn a_leaf_goes_up_by_any_spine_and_down_by_one_port() {
        let cabling = leaf_spine();
        let routes = Routes::new(&cabling, |_, _| true);
        assert_eq!(routes.next_hops(0, NodeId(1)).0, [1], "its own host");
        assert_eq!(routes.next_hops(0, NodeId(2)).0, [2, 3], "a host of another leaf");
        assert_eq!(routes.next_hops(3, NodeId(2)).0, [1], "down from a spine");
        assert_eq!(routes.next_hops(0, cabling.switch(3)).0, [3], "to one spine");
        assert_eq!(routes.next_hops(0, cabling.switch(0)).0, [0u16; 0], "to itself");
        assert_eq!(routes.attachment(NodeId(2)), (1, 0));
    }

    #[test]
    fn a_dead_cable_is_avoided_by_switches_that_it_is_not_plugged_into_too() {
        let cabling = leaf_spine();
        // Cable 5 joins leaf 1 and spine 2: leaf 0 must not send packets for leaf 1 there.
        let routes = Routes::new(&cabling, |cable, _| cable != 5);
        assert_eq!(routes.next_hops(0, NodeId(2)).0, [3]);
        assert_eq!(routes.next_hops(2, NodeId(2)).0, [0], "what is there already goes back");
        let routes = Routes::new(&cabling, |cable, _| cable != 5 && cable != 6);
        assert_eq!(routes.next_hops(0, NodeId(2)).0, [0u16; 0], "out of reach");
    }
}
