//! The switches in which a job's trees end: the lowest switches that connect all members, the least loaded first.
//!
//! PANAMA leaves the number of trees, the choice of roots and the awareness of load open (§3, §4.1).

use tributary_proto::contract::ids::NodeId;

use super::network::{Entry, Ledger};
use super::{Network, Tree, TreeError};

/// What a job needs of its trees.
pub struct Wish<'a> {
    /// The hosts, by rank.
    pub members: &'a [NodeId],
    /// The number of trees, if there are so many and switches have memory for them; otherwise fewer are planned.
    pub trees: u16,
    /// The rate that the job is expected to send, as in [`Network::add_load`].
    pub rate: u64,
    /// The bytes that one tree takes of a switch with so many children.
    pub need: &'a dyn Fn(usize) -> u64,
}

impl Network {
    /// The switches in which a tree may end, ascending: those at the least possible distance from the members. If the
    /// members have one switch in common, it is that switch.
    pub fn candidates(&self, wish: &Wish<'_>) -> Result<Vec<NodeId>, TreeError> {
        let entries = self.entries(wish.members)?;
        let shut = self.shut(wish);
        self.check_entries(&entries, wish, &shut)?;
        let mut firsts: Vec<u32> = entries.iter().map(|entry| entry.switch).collect();
        firsts.sort_unstable();
        firsts.dedup();
        let mut farthest = vec![0u32; shut.len()];
        for first in firsts {
            for (farthest, distance) in farthest.iter_mut().zip(self.distances(first, &shut)) {
                *farthest = distance.max(*farthest);
            }
        }
        let open = || farthest.iter().zip(&shut).enumerate().filter(|&(_, (&far, &shut))| !shut && far < u32::MAX);
        match open().map(|(_, (&far, _))| far).min() {
            Some(least) => {
                let nearest = open().filter(|&(_, (&far, _))| far == least);
                Ok(nearest.map(|(switch, _)| self.cabling.switch(switch as u32)).collect())
            }
            None => Err(self.no_root(&shut)),
        }
    }

    /// The job's trees, under some of these roots. Each time the tree whose cables between switches are the least
    /// loaded is taken (by the fullest cable, then by the sum), counting the trees taken before; among equals the tree
    /// whose root is first in `roots`. Equal trees count once.
    pub fn choose(&self, wish: &Wish<'_>, roots: &[NodeId]) -> Result<Vec<Tree>, TreeError> {
        if wish.trees == 0 {
            return Err(TreeError::NoTrees);
        }
        let entries = self.entries(wish.members)?;
        let shut = self.shut(wish);
        self.check_entries(&entries, wish, &shut)?;
        let (mut open, mut refused): (Vec<Tree>, Option<TreeError>) = (Vec::new(), None);
        for &root in roots {
            match self.tree_with_room(&entries, root, wish, &shut) {
                Ok(tree) if open.contains(&tree) => {}
                Ok(tree) => open.push(tree),
                Err(error) => drop(refused.get_or_insert(error)),
            }
        }
        let mut planned = self.ledger.clone();
        let mut chosen = Vec::new();
        let share = (wish.rate / u64::from(wish.trees)).max(1);
        while chosen.len() < usize::from(wish.trees) {
            open.retain(|tree| self.lacks_room(tree, wish, &planned).is_none());
            let best = (0..open.len()).min_by_key(|&index| self.load_of(&open[index], &planned));
            let Some(best) = best else { break };
            let tree = open.remove(best);
            for cable in self.cables_between_switches(&tree) {
                planned.load[cable] = planned.load[cable].saturating_add(share);
            }
            for switch in &tree.switches {
                planned.rooms[self.index(switch.node)] -= (wish.need)(switch.children.len());
            }
            chosen.push(tree);
        }
        if chosen.is_empty() { Err(refused.unwrap_or_else(|| self.no_root(&shut))) } else { Ok(chosen) }
    }

    /// Switches that are dead, or have no memory for even one child.
    fn shut(&self, wish: &Wish<'_>) -> Vec<bool> {
        let least = (wish.need)(1);
        self.dead_switches.iter().zip(&self.ledger.rooms).map(|(&dead, &room)| dead || room < least).collect()
    }

    /// Checks the members' own switches, which every tree needs.
    fn check_entries(&self, entries: &[Entry], wish: &Wish<'_>, shut: &[bool]) -> Result<(), TreeError> {
        match entries.iter().find(|entry| shut[entry.switch as usize]) {
            Some(entry) => {
                let beside = entries.iter().filter(|other| other.switch == entry.switch).count();
                Err(self.full(entry.switch as usize, beside, wish))
            }
            None => Ok(()),
        }
    }

    fn full(&self, switch: usize, children: usize, wish: &Wish<'_>) -> TreeError {
        let (need, room) = ((wish.need)(children), self.ledger.rooms[switch]);
        TreeError::Full { switch: self.switch_name(switch), children, need, room }
    }

    fn no_root(&self, shut: &[bool]) -> TreeError {
        let shut = shut.iter().enumerate().filter(|&(_, &shut)| shut);
        TreeError::NoRoot { shut: shut.map(|(switch, _)| self.switch_name(switch)).collect() }
    }

    /// The tree under one root that avoids switches without memory for as many children as they would have.
    fn tree_with_room(
        &self,
        entries: &[Entry],
        root: NodeId,
        wish: &Wish<'_>,
        shut: &[bool],
    ) -> Result<Tree, TreeError> {
        let (root, mut shut, mut full) = (self.root_index(root)?, shut.to_vec(), None);
        loop {
            let tree = self.tree_around(entries, root, &shut).map_err(|error| full.clone().unwrap_or(error))?;
            let Some((switch, children)) = self.lacks_room(&tree, wish, &self.ledger) else { return Ok(tree) };
            let error = full.get_or_insert_with(|| self.full(switch, children, wish)).clone();
            if switch as u32 == root || entries.iter().any(|entry| entry.switch as usize == switch) {
                return Err(error);
            }
            shut[switch] = true;
        }
    }

    /// A switch with too little memory for its part of a tree, and the number of children that it has in the tree.
    fn lacks_room(&self, tree: &Tree, wish: &Wish<'_>, ledger: &Ledger) -> Option<(usize, usize)> {
        let part = |switch: &super::TreeSwitch| (self.index(switch.node), switch.children.len());
        tree.switches.iter().map(part).find(|&(switch, children)| (wish.need)(children) > ledger.rooms[switch])
    }

    /// The load of the fullest of a tree's cables between switches, and the sum of their loads.
    fn load_of(&self, tree: &Tree, ledger: &Ledger) -> (u64, u64) {
        let loads = || self.cables_between_switches(tree).into_iter().map(|cable| ledger.load[cable]);
        (loads().max().unwrap_or(0), loads().fold(0, u64::saturating_add))
    }
}
