//! For every switch and every destination: the ports that lie on a shortest path.
//!
//! In a tree-like network (leaf-spine, fat tree, folded Clos) the shortest paths are the up/down paths. The simulator and
//! the daemons of a fabric both look their next hops up here.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::contract::ids::{NodeId, PortId};

/// Which nodes are connected. Hosts are the nodes `0..hosts`, and forward nothing; switches follow. A node's ports are
/// numbered in the order of its cables.
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

/// Next hops from every switch to every other switch. A host with one cable is reached through its switch. Hosts with several
/// cables to the same switches, in the same order, are a bundle: its number comes after those of the switches, and it has next
/// hops of its own.
#[derive(Clone, Debug)]
pub struct Routes {
    hosts: u32,
    /// How many switches and bundles there are.
    targets: u32,
    /// For each host: its switch, as an index, and the port at that switch; or its bundle.
    attachment: Vec<(u32, u16)>,
    /// The first switch of each host with several cables, and the port there.
    first_of: BTreeMap<NodeId, (u32, u16)>,
    /// The ports that lead to each host with several cables, by its switches.
    last_hops: BTreeMap<(NodeId, u32), Vec<u16>>,
    /// For each pair of switches and bundles a group, row by row.
    groups_of: Vec<u16>,
    /// For each switch and bundle: where its groups begin.
    first_group: Vec<u32>,
    groups: Vec<Group>,
    ports: Vec<u16>,
}

/// The port of a host that has one.
const ONLY: [u16; 1] = [0];

impl Routes {
    /// Finds the shortest paths over usable cables. `usable` is called for each cable with the end that sends on it.
    pub fn new(cabling: &Cabling, usable: impl Fn(usize, NodeId) -> bool) -> Routes {
        let all_ports = cabling.ports();
        let hosts = HostCables::new(cabling, &all_ports, &usable);
        let neighbours = Neighbours::new(cabling, &all_ports, &usable);
        let targets = neighbours.0.len() + hosts.bundles.len();
        let mut builder = GroupBuilder { groups_of: vec![0; targets * targets], own: vec![BTreeMap::new(); targets] };
        for target in 0..targets {
            builder.add_target(&neighbours, &hosts.bundles, target);
        }
        let mut routes = Routes {
            hosts: cabling.hosts,
            targets: targets as u32,
            attachment: hosts.attachment,
            first_of: hosts.first_of,
            last_hops: hosts.last_hops,
            groups_of: builder.groups_of,
            first_group: Vec::with_capacity(targets),
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
        match self.group(switch, target) {
            [] => NextHops(self.last_hops.get(&(to, switch)).map_or(&[], Vec::as_slice)),
            ports => NextHops(ports),
        }
    }

    /// The same, for packets that reach hosts by their first cables.
    #[inline]
    pub fn next_hops_by_first_cable(&self, switch: u32, to: NodeId) -> NextHops<'_> {
        match self.first_of.get(&to) {
            None => self.next_hops(switch, to),
            Some((own, port)) if *own == switch => NextHops(std::slice::from_ref(port)),
            Some((own, _)) => self.next_hops(switch, NodeId(self.hosts + own)),
        }
    }

    /// The ports of a host that are nearest to a node; empty if the node cannot be reached.
    pub fn first_hops(&self, host: NodeId, to: NodeId) -> NextHops<'_> {
        if !self.has_several_cables(host) {
            return NextHops(&ONLY);
        }
        let target = self.attachment.get(to.index()).map_or(to.0.wrapping_sub(self.hosts), |&(target, _)| target);
        NextHops(self.group(self.attachment[host.index()].0, target))
    }

    #[inline]
    fn group(&self, from: u32, target: u32) -> &[u16] {
        let group = self.groups_of[(from * self.targets + target) as usize];
        let group = self.groups[(self.first_group[from as usize] + u32::from(group)) as usize];
        &self.ports[group.start as usize..group.start as usize + usize::from(group.len)]
    }

    /// The switch that a host's first cable leads to, and the port at that switch.
    #[inline]
    pub fn attachment(&self, host: NodeId) -> (u32, u16) {
        if self.first_of.is_empty() {
            return self.attachment[host.index()];
        }
        self.first_of.get(&host).copied().unwrap_or(self.attachment[host.index()])
    }

    /// True if a cable joins a switch and a host.
    #[inline]
    pub fn is_next_to(&self, switch: u32, host: NodeId) -> bool {
        self.attachment[host.index()].0 == switch || self.last_hops.contains_key(&(host, switch))
    }

    /// True if a host has several cables.
    pub fn any_has_several_cables(&self) -> bool {
        !self.first_of.is_empty()
    }

    /// True for a host with several cables.
    #[inline]
    pub fn has_several_cables(&self, host: NodeId) -> bool {
        !self.first_of.is_empty() && self.first_of.contains_key(&host)
    }
}

/// The cables of hosts, as switches see them.
struct HostCables {
    attachment: Vec<(u32, u16)>,
    first_of: BTreeMap<NodeId, (u32, u16)>,
    last_hops: BTreeMap<(NodeId, u32), Vec<u16>>,
    /// The switches of each bundle, by the ports of its hosts; `None` for a cable that is not usable.
    bundles: Vec<Vec<Option<u32>>>,
}

impl HostCables {
    fn new(cabling: &Cabling, ports: &[Vec<Port>], usable: impl Fn(usize, NodeId) -> bool) -> HostCables {
        let attachment = attachments(cabling, ports);
        let mut cables =
            HostCables { attachment, first_of: BTreeMap::new(), last_hops: BTreeMap::new(), bundles: Vec::new() };
        let mut known = BTreeMap::new();
        let numbers = cabling.port_numbers();
        for host in (0..cabling.hosts).map(NodeId).filter(|host| ports[host.index()].len() > 1) {
            let bundle = |port: &Port| {
                let switch = cabling.switch_index(port.to)?;
                (usable(port.cable, host) && usable(port.cable, port.to)).then_some(switch)
            };
            let switches: Vec<Option<u32>> = ports[host.index()].iter().map(bundle).collect();
            for (number, port) in ports[host.index()].iter().enumerate() {
                let [first, second] = numbers[port.cable];
                let there = if cabling.cables[port.cable].0 == host { second } else { first };
                if number == 0 {
                    let switch = cabling.switch_index(port.to).unwrap_or(u32::MAX);
                    cables.first_of.insert(host, (switch, there.0));
                }
                if let Some(switch) = switches[number] {
                    cables.last_hops.entry((host, switch)).or_default().push(there.0);
                }
            }
            let fresh = cabling.switches + known.len() as u32;
            let number = *known.entry(switches.clone()).or_insert(fresh);
            if number == fresh {
                cables.bundles.push(switches);
            }
            cables.attachment[host.index()] = (number, 0);
        }
        cables
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
    /// For each switch and bundle the sets of ports that it uses, numbered in the order in which they occurred.
    own: Vec<BTreeMap<Vec<u16>, u16>>,
}

impl GroupBuilder {
    /// Searches breadth first from the target. Links are cables, so distances are the same both ways.
    fn add_target(&mut self, neighbours: &Neighbours, bundles: &[Vec<Option<u32>>], target: usize) {
        let switches = neighbours.0.len();
        let mut distance = vec![u32::MAX; switches];
        let mut reached: VecDeque<usize> = match target.checked_sub(switches) {
            Some(bundle) => bundles[bundle].iter().flatten().map(|&switch| switch as usize).collect(),
            None => [target].into(),
        };
        reached.iter().for_each(|&first| distance[first] = 0);
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
            self.add_group(switch, target, ports);
        }
        for (number, bundle) in bundles.iter().enumerate() {
            let far = |switch: &Option<u32>| switch.map_or(u32::MAX, |switch| distance[switch as usize]);
            let least = bundle.iter().map(far).min().filter(|&least| least < u32::MAX);
            let nearest = (0..).zip(bundle).filter(|(_, switch)| Some(far(switch)) == least);
            self.add_group(switches + number, target, nearest.map(|(port, _)| port).collect());
        }
    }

    fn add_group(&mut self, from: usize, target: usize, ports: Vec<u16>) {
        let (targets, fresh) = (self.own.len(), self.own[from].len() as u16);
        self.groups_of[from * targets + target] = *self.own[from].entry(ports).or_insert(fresh);
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

    /// Hosts 0 and 1 are on switches 0 and 1 both; host 2 is on switch 1 twice; switch 2 joins both, and host 3.
    fn several_cables() -> Cabling {
        let cable = |a, b| (NodeId(a), NodeId(b));
        let hosts = [cable(0, 4), cable(0, 5), cable(1, 4), cable(1, 5), cable(2, 5), cable(5, 2), cable(3, 6)];
        let cables = hosts.into_iter().chain([cable(4, 6), cable(5, 6)]).collect();
        Cabling { hosts: 4, switches: 3, cables }
    }

    #[test]
    fn a_host_with_several_cables_leaves_by_those_that_are_nearest() {
        let cabling = several_cables();
        let routes = Routes::new(&cabling, |_, _| true);
        let first = |host, to| routes.first_hops(NodeId(host), to).0;
        assert_eq!(first(0, NodeId(1)), [0, 1], "both switches are next to host 1");
        assert_eq!(first(0, NodeId(2)), [1], "only switch 1 is next to host 2");
        assert_eq!(first(2, NodeId(0)), [0, 1], "two cables to one switch");
        assert_eq!(first(0, NodeId(3)), [0, 1]);
        assert_eq!(first(0, cabling.switch(1)), [1]);
        assert_eq!(first(3, NodeId(0)), [0], "it has one");
        assert_eq!(routes.next_hops(2, NodeId(0)).0, [1, 2], "down to either switch");
        assert_eq!(routes.next_hops(0, NodeId(0)).0, [0]);
        assert_eq!(routes.next_hops(1, NodeId(2)).0, [2, 3], "by either cable");
        assert_eq!(routes.next_hops(0, NodeId(2)).0, [2], "a host forwards nothing, so the way is over switch 2");
        assert_eq!((routes.attachment(NodeId(0)), routes.attachment(NodeId(2))), ((0, 0), (1, 2)), "the first cable");
        assert_eq!(routes.next_hops_by_first_cable(2, NodeId(0)).0, [1], "not to switch 1, which is as near");
        assert_eq!(routes.next_hops_by_first_cable(1, NodeId(0)).0, [4], "past switch 1, to which it has a cable");
        assert!(routes.is_next_to(1, NodeId(0)) && routes.is_next_to(2, NodeId(3)) && !routes.is_next_to(0, NodeId(2)));
    }

    #[test]
    fn a_dead_cable_of_a_host_is_avoided_at_both_of_its_ends() {
        let cabling = several_cables();
        // Cable 1 joins host 0 and switch 1.
        let routes = Routes::new(&cabling, |cable, _| cable != 1);
        assert_eq!(routes.first_hops(NodeId(0), NodeId(2)).0, [0], "over switches 0 and 2");
        assert_eq!(routes.next_hops(2, NodeId(0)).0, [1]);
        assert_eq!(routes.next_hops(1, NodeId(0)).0, [4], "away from the dead cable");
        assert_eq!(routes.first_hops(NodeId(1), NodeId(0)).0, [0]);
        let routes = Routes::new(&cabling, |cable, _| cable > 1);
        assert_eq!((routes.first_hops(NodeId(0), NodeId(1)).0, routes.next_hops(0, NodeId(0)).0), (&[][..], &[][..]));
    }
}
