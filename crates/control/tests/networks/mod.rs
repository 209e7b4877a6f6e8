//! Networks for the tests of trees: the papers' shapes, and any other that can be drawn.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tributary_control::routes::Cabling;
use tributary_control::trees::TreePlanner;
use tributary_proto::contract::ids::NodeId;

pub fn nodes(numbers: &[u32]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn name(cabling: &Cabling, node: u32) -> String {
    match cabling.switch_index(NodeId(node)) {
        Some(switch) => format!("switch {switch}"),
        None => format!("host {node}"),
    }
}

pub fn network(cabling: &Cabling) -> TreePlanner {
    let names = (0..cabling.nodes() as u32).map(|node| name(cabling, node)).collect();
    TreePlanner::new(cabling.clone(), names)
}

/// Leaves are switches `0..leaves`, spines follow; `hosts_per_leaf` hosts on each.
pub fn leaf_spine(leaves: u32, spines: u32, hosts_per_leaf: u32) -> Cabling {
    let hosts = leaves * hosts_per_leaf;
    let below = (0..hosts).map(|host| (NodeId(host), NodeId(hosts + host / hosts_per_leaf)));
    let between = (0..leaves).flat_map(|leaf| (0..spines).map(move |spine| (leaf, leaves + spine)));
    let between = between.map(|(leaf, spine)| (NodeId(hosts + leaf), NodeId(hosts + spine)));
    Cabling { hosts, switches: leaves + spines, cables: below.chain(between).collect() }
}

/// Al-Fares' fat tree of switches with `k` ports: edges first, then aggregation switches, then the core.
pub fn fat_tree(k: u32) -> Cabling {
    let (half, hosts) = (k / 2, k * k * k / 4);
    let (edges, cores) = (k * half, half * half);
    let switch = |index: u32| NodeId(hosts + index);
    let mut cables: Vec<_> = (0..hosts).map(|host| (NodeId(host), switch(host / half))).collect();
    for edge in 0..edges {
        cables.extend((0..half).map(|up| (switch(edge), switch(edges + edge / half * half + up))));
    }
    for aggregation in 0..edges {
        let core = |up| switch(2 * edges + aggregation % half * half + up);
        cables.extend((0..half).map(|up| (switch(edges + aggregation), core(up))));
    }
    Cabling { hosts, switches: 2 * edges + cores, cables }
}

/// A network with members and deaths.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub cabling: Cabling,
    pub members: Vec<NodeId>,
    pub dead_cables: BTreeSet<usize>,
    pub dead_switches: BTreeSet<NodeId>,
}

impl Drawn {
    pub fn network(&self) -> TreePlanner {
        let mut network = network(&self.cabling);
        self.dead_cables.iter().for_each(|&cable| network.set_cable(cable, false));
        self.dead_switches.iter().for_each(|&switch| network.set_switch(switch, false));
        network
    }

    /// The hosts and switches that a live switch reaches over what lives. Nothing passes through a host.
    fn reached(&self, from: NodeId) -> BTreeSet<NodeId> {
        let live = |node: NodeId| !self.dead_switches.contains(&node);
        let mut reached: BTreeSet<NodeId> = [from].into_iter().filter(|&from| live(from)).collect();
        loop {
            let before = reached.len();
            for (number, &(a, b)) in self.cabling.cables.iter().enumerate() {
                for (a, b) in [(a, b), (b, a)] {
                    let passes = self.cabling.switch_index(a).is_some() && reached.contains(&a);
                    if passes && live(b) && !self.dead_cables.contains(&number) {
                        reached.insert(b);
                    }
                }
            }
            if reached.len() == before {
                return reached;
            }
        }
    }

    pub fn reaches_all(&self, root: NodeId) -> bool {
        let reached = self.reached(root);
        self.members.iter().all(|member| reached.contains(member))
    }

    /// No switch reaches all members.
    pub fn is_cut(&self) -> bool {
        (0..self.cabling.switches).all(|switch| !self.reaches_all(self.cabling.switch(switch)))
    }
}

/// Up to 12 switches and 16 hosts with any cables between them, in any order; members in any order; some deaths.
pub fn drawn() -> impl Strategy<Value = Drawn> {
    (1..=12u32, 1..=16u32).prop_flat_map(|(switches, hosts)| {
        let first = prop::collection::vec(0..switches, hosts as usize);
        let between = prop::collection::vec((0..switches, 0..switches), 0..24);
        let members = prop::sample::subsequence((0..hosts).collect::<Vec<_>>(), 1..=hosts as usize).prop_shuffle();
        let dead = prop::collection::btree_set(0..switches, 0..=2);
        (first, between, members, dead, prop::collection::vec(any::<prop::sample::Index>(), 0..3), any::<u64>())
            .prop_map(move |(first, between, members, dead, cut, order)| {
                let switch = |index: u32| NodeId(hosts + index);
                let below = first.iter().enumerate().map(|(host, &leaf)| (NodeId(host as u32), switch(leaf)));
                let joined: BTreeSet<_> =
                    between.iter().filter(|(a, b)| a != b).map(|&(a, b)| (a.min(b), a.max(b))).collect();
                let mut cables: Vec<_> = below.chain(joined.into_iter().map(|(a, b)| (switch(a), switch(b)))).collect();
                let turn = order as usize % cables.len();
                cables.rotate_left(turn);
                Drawn {
                    dead_cables: cut.iter().map(|index| index.index(cables.len())).collect(),
                    dead_switches: dead.into_iter().map(switch).collect(),
                    members: members.into_iter().map(NodeId).collect(),
                    cabling: Cabling { hosts, switches, cables },
                }
            })
    })
}
