//! The planner of trees, and what it knows: cables, dead nodes and cables, free memory, and the load that is already
//! planned.

use std::collections::VecDeque;

use tributary_proto::contract::ids::{NodeId, PortId, Rank};

use super::{Tree, TreeError};
use crate::routes::{Cabling, Port};

/// Plans trees over a network.
#[derive(Clone, Debug)]
pub struct TreePlanner {
    pub(super) cabling: Cabling,
    /// The ports of each node.
    pub(super) ports: Vec<Vec<Port>>,
    /// The port at the first and at the second end of each cable.
    pub(super) ends: Vec<[PortId; 2]>,
    names: Vec<String>,
    dead_cables: Vec<bool>,
    pub(super) dead_switches: Vec<bool>,
    /// Members enter the network by their hosts' first cables.
    only_first: bool,
    pub(super) usage: Usage,
}

/// Memory and rate that are taken already.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    /// Bytes that are free in each switch.
    pub(super) free_bytes: Vec<u64>,
    /// The rate that jobs are expected to send over each cable, each way.
    pub(super) load: Vec<u64>,
}

/// Where a member may enter the network: by each cable of its host that is alive.
pub(super) type Entries = Vec<Entry>;

/// One of these cables.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) host: NodeId,
    pub(super) switch: u32,
    pub(super) port: PortId,
}

impl TreePlanner {
    /// A planner for a network in which everything is alive, switches have unlimited memory, and nothing runs. `names` are the nodes'
    /// names, for errors.
    pub fn new(cabling: Cabling, names: Vec<String>) -> TreePlanner {
        debug_assert_eq!(names.len(), cabling.nodes());
        let switches = cabling.switches as usize;
        TreePlanner {
            ports: cabling.ports(),
            ends: cabling.port_numbers(),
            names,
            dead_cables: vec![false; cabling.cables.len()],
            dead_switches: vec![false; switches],
            only_first: false,
            usage: Usage { free_bytes: vec![u64::MAX; switches], load: vec![0; cabling.cables.len()] },
            cabling,
        }
    }

    /// The same network with everything alive, unlimited memory and no load.
    pub fn intact(&self) -> TreePlanner {
        TreePlanner::new(self.cabling.clone(), self.names.clone())
    }

    /// The same network, which members enter by their hosts' first cables.
    #[must_use]
    pub fn by_first_cables(&self) -> TreePlanner {
        TreePlanner { only_first: true, ..self.clone() }
    }

    /// Every switch.
    pub fn switches(&self) -> impl Iterator<Item = NodeId> + use<> {
        (self.cabling.hosts..self.cabling.hosts + self.cabling.switches).map(NodeId)
    }

    /// The switch that a host's first cable leads to.
    pub fn leaf_of(&self, host: NodeId) -> Option<NodeId> {
        self.ports.get(host.index())?.first().map(|port| port.to)
    }

    /// True if the cable in this port of a node is dead.
    pub fn is_dead(&self, node: NodeId, port: PortId) -> bool {
        let cable = self.ports.get(node.index()).and_then(|ports| ports.get(port.index())).map(|port| port.cable);
        cable.is_some_and(|cable| self.dead_cables[cable])
    }

    /// True if all cables between a switch and other switches are dead.
    pub fn is_cut_off(&self, switch: NodeId) -> bool {
        let mut ports = self.ports[switch.index()].iter().filter(|port| self.cabling.switch_index(port.to).is_some());
        ports.all(|port| self.dead_cables[port.cable])
    }

    /// Sets whether trees may use a cable.
    pub fn set_cable(&mut self, cable: usize, alive: bool) {
        self.dead_cables[cable] = !alive;
    }

    /// Sets whether trees may use a switch.
    pub fn set_switch(&mut self, switch: NodeId, alive: bool) {
        let index = self.index(switch);
        self.dead_switches[index] = !alive;
    }

    /// Sets the bytes of a switch that are free for trees.
    pub fn set_free(&mut self, switch: NodeId, bytes: u64) {
        let index = self.index(switch);
        self.usage.free_bytes[index] = bytes;
    }

    /// The bytes of a switch that are free for trees.
    pub fn free(&self, switch: NodeId) -> u64 {
        self.usage.free_bytes[self.index(switch)]
    }

    /// Adds a job that sends at this rate over each of the cables of its trees, in any unit that is the same for all jobs.
    /// Each tree carries its share.
    pub fn add_load(&mut self, trees: &[Tree], rate: u64) {
        self.each_load(trees, rate, |load, share| load.saturating_add(share));
    }

    /// Takes away what was added for a job with these trees.
    pub fn take_load(&mut self, trees: &[Tree], rate: u64) {
        self.each_load(trees, rate, |load, share| load.saturating_sub(share));
    }

    fn each_load(&mut self, trees: &[Tree], rate: u64, change: impl Fn(u64, u64) -> u64) {
        let share = rate / trees.len().max(1) as u64;
        let cables: Vec<usize> = trees.iter().flat_map(|tree| self.cables_between_switches(tree)).collect();
        for cable in cables {
            let load = &mut self.usage.load[cable];
            *load = change(*load, share);
        }
    }

    /// The cables of a tree between switches: cables that another tree may avoid.
    pub(super) fn cables_between_switches(&self, tree: &Tree) -> Vec<usize> {
        let up = |switch: &super::TreeSwitch| {
            let parent = switch.parent?;
            Some(self.ports[switch.node.index()][parent.port.index()].cable)
        };
        tree.switches.iter().filter_map(up).collect()
    }

    /// A node's name, for people.
    pub fn name(&self, node: NodeId) -> &str {
        self.names.get(node.index()).map_or("a node that does not exist", String::as_str)
    }

    pub(super) fn switch_name(&self, switch: usize) -> String {
        self.name(self.cabling.switch(switch as u32)).to_owned()
    }

    pub(super) fn index(&self, switch: NodeId) -> usize {
        self.cabling.switch_index(switch).expect("only switches are marked") as usize
    }

    /// Where each member may enter the network, by rank.
    pub(super) fn entries(&self, members: &[NodeId]) -> Result<Vec<Entries>, TreeError> {
        if members.is_empty() {
            return Err(TreeError::NoMembers);
        }
        let mut rank_on: Vec<Option<Rank>> = vec![None; self.cabling.hosts as usize];
        let entry = |(rank, &host): (usize, &NodeId)| {
            let rank = Rank(rank as u16);
            let Some(there) = rank_on.get_mut(host.index()) else {
                return Err(TreeError::NotAHost { rank, node: host.0 });
            };
            if let Some(a) = there.replace(rank) {
                return Err(TreeError::SameHost { a, b: rank, host: self.name(host).to_owned() });
            }
            self.entries_of(rank, host)
        };
        members.iter().enumerate().map(entry).collect()
    }

    /// At least one entry; if all are dead, the error names what is dead of the first.
    fn entries_of(&self, rank: Rank, host: NodeId) -> Result<Entries, TreeError> {
        let ports = &self.ports[host.index()];
        let ports = &ports[..if self.only_first { ports.len().min(1) } else { ports.len() }];
        let mut entries: Vec<_> = ports.iter().map(|port| self.entry(rank, host, *port)).collect();
        if entries.iter().all(Result::is_err) {
            let first = (!entries.is_empty()).then(|| entries.swap_remove(0));
            return first.unwrap_or(Err(TreeError::NotAHost { rank, node: host.0 })).map(|entry| vec![entry]);
        }
        Ok(entries.into_iter().flatten().collect())
    }

    fn entry(&self, rank: Rank, host: NodeId, Port { cable, to }: Port) -> Result<Entry, TreeError> {
        let cut_off = |dead: String| TreeError::CutOff { rank, host: self.name(host).to_owned(), dead };
        let switch = self.cabling.switch_index(to).ok_or_else(|| cut_off(self.name(to).to_owned()))?;
        if self.dead_switches[switch as usize] {
            return Err(cut_off(self.name(to).to_owned()));
        }
        if self.dead_cables[cable] {
            return Err(cut_off(format!("its cable to {}", self.name(to))));
        }
        let first = self.cabling.cables[cable].0 == host;
        Ok(Entry { host, switch, port: self.ends[cable][usize::from(first)] })
    }

    /// The switches next to a switch, over cables that are alive: (port, switch), by ascending port.
    pub(super) fn neighbours(&self, switch: u32) -> impl Iterator<Item = (PortId, u32)> + '_ {
        let own = self.ports[self.cabling.switch(switch).index()].iter().enumerate();
        own.filter(|(_, port)| !self.dead_cables[port.cable])
            .filter_map(|(number, port)| Some((PortId(number as u16), self.cabling.switch_index(port.to)?)))
    }

    /// Each switch's distance from the nearest of some switches in cables, without the excluded switches.
    pub(super) fn distances(&self, from: &[u32], excluded: &[bool]) -> Vec<u32> {
        let mut distance = vec![u32::MAX; self.cabling.switches as usize];
        let mut reached: VecDeque<u32> = from.iter().copied().collect();
        from.iter().for_each(|&first| distance[first as usize] = 0);
        while let Some(switch) = reached.pop_front() {
            for (_, next) in self.neighbours(switch) {
                if !excluded[next as usize] && distance[next as usize] == u32::MAX {
                    distance[next as usize] = distance[switch as usize] + 1;
                    reached.push_back(next);
                }
            }
        }
        distance
    }
}
