//! The switches in which a job's trees end: the lowest switches that connect all members, the least loaded first.
//!
//! PANAMA leaves the number of trees, the choice of roots and the awareness of load open (§3, §4.1).

use tributary_proto::contract::ids::{JobId, NodeId};

use super::planner::{Entries, Usage};
use super::{DEFAULT_TREES, Tree, TreeError, TreePlanner, TreeSwitch};

/// The rate that each job is expected to send, where nothing better is known.
pub const JOB_RATE: u64 = 1 << 20;

/// A job whose trees are planned.
#[derive(Clone, Copy)]
pub struct TreeJob<'a> {
    /// The job's id.
    pub id: JobId,
    /// The hosts, by rank.
    pub hosts: &'a [NodeId],
    /// The number of trees, if the job's ranks insist on one.
    pub trees: Option<u16>,
}

/// What a job needs of its trees.
pub struct TreeRequest<'a> {
    /// The hosts, by rank.
    pub members: &'a [NodeId],
    /// The number of trees, if the network has that many and switches have memory for them; otherwise fewer are planned.
    pub trees: u16,
    /// The rate that the job is expected to send, as in [`TreePlanner::add_load`].
    pub rate: u64,
    /// The bytes that one tree takes of a switch, by the number of its children there.
    pub need: &'a dyn Fn(usize) -> u64,
}

impl TreePlanner {
    /// The switches in which a tree may end, ascending: those at the least possible distance from the members. If the
    /// members have one switch in common, it is that switch.
    pub fn candidates(&self, request: &TreeRequest<'_>) -> Result<Vec<NodeId>, TreeError> {
        let entries = self.entries(request.members)?;
        let excluded = self.excluded(request);
        self.check_entries(&entries, request, &excluded)?;
        let open_firsts = |entries: &Entries| {
            let mut firsts: Vec<u32> = entries.iter().map(|entry| entry.switch).collect();
            firsts.retain(|&switch| !excluded[switch as usize]);
            firsts.sort_unstable();
            firsts.dedup();
            firsts
        };
        let mut of_members: Vec<Vec<u32>> = entries.iter().map(open_firsts).collect();
        of_members.sort_unstable();
        of_members.dedup();
        let mut farthest = vec![0u32; excluded.len()];
        for firsts in of_members {
            for (farthest, distance) in farthest.iter_mut().zip(self.distances(&firsts, &excluded)) {
                *farthest = distance.max(*farthest);
            }
        }
        let open =
            || farthest.iter().zip(&excluded).enumerate().filter(|&(_, (&far, &excluded))| !excluded && far < u32::MAX);
        match open().map(|(_, (&far, _))| far).min() {
            Some(least) => {
                let nearest = open().filter(|&(_, (&far, _))| far == least);
                Ok(nearest.map(|(switch, _)| self.cabling.switch(switch as u32)).collect())
            }
            None => Err(self.no_root(&excluded)),
        }
    }

    /// The job's trees, under some of these roots. Each time the tree whose cables between switches are the least
    /// loaded is taken (by the fullest cable, then by the sum), counting the trees taken before; among equals the tree
    /// whose root is first in `roots`. Equal trees count once.
    pub fn choose(&self, request: &TreeRequest<'_>, roots: &[NodeId]) -> Result<Vec<Tree>, TreeError> {
        if request.trees == 0 {
            return Err(TreeError::NoTrees);
        }
        let entries = self.entries(request.members)?;
        let excluded = self.excluded(request);
        self.check_entries(&entries, request, &excluded)?;
        let (mut open, mut refused): (Vec<Tree>, Option<TreeError>) = (Vec::new(), None);
        for &root in roots {
            match self.tree_with_memory(&entries, root, request, &excluded) {
                Ok(tree) if open.contains(&tree) => {}
                Ok(tree) => open.push(tree),
                Err(error) => drop(refused.get_or_insert(error)),
            }
        }
        let mut planned = self.usage.clone();
        let mut chosen = Vec::new();
        let share = (request.rate / u64::from(request.trees)).max(1);
        while chosen.len() < usize::from(request.trees) {
            open.retain(|tree| self.lacks_memory(tree, request, &planned).is_none());
            let best = (0..open.len()).min_by_key(|&index| self.load_of(&open[index], &planned));
            let Some(best) = best else { break };
            let tree = open.remove(best);
            for cable in self.cables_between_switches(&tree) {
                planned.load[cable] = planned.load[cable].saturating_add(share);
            }
            for switch in &tree.switches {
                planned.free_bytes[self.index(switch.node)] -= (request.need)(switch.children.len());
            }
            chosen.push(tree);
        }
        if chosen.is_empty() { Err(refused.unwrap_or_else(|| self.no_root(&excluded))) } else { Ok(chosen) }
    }

    /// The trees of a job, under roots that its id chooses among equals. `need`: the bytes that a tree takes of a switch,
    /// by the number of its children there.
    pub fn plan(&self, job: TreeJob<'_>, need: &dyn Fn(usize) -> u64) -> Result<Vec<Tree>, TreeError> {
        let (members, trees) = (job.hosts, job.trees.unwrap_or(DEFAULT_TREES));
        let mut request = TreeRequest { members, trees, rate: JOB_RATE, need };
        let mut roots = self.candidates(&request)?;
        request.trees = job.trees.unwrap_or(DEFAULT_TREES.min(roots.len() as u16));
        // Jobs that see equal loads begin with different roots.
        let first = job.id.index() % roots.len();
        roots.rotate_left(first);
        self.choose(&request, &roots)
    }

    /// True if the planned trees are as many as there would be if everything were alive.
    pub fn is_complete(&self, job: TreeJob<'_>, planned: &Result<Vec<Tree>, TreeError>) -> bool {
        match (planned, self.intact().plan(job, &|_| 0)) {
            (Ok(planned), Ok(complete)) => planned.len() >= complete.len(),
            (Err(_), Ok(_)) => false,
            (_, Err(_)) => true,
        }
    }

    /// Switches that are dead, or have no memory for even one child.
    fn excluded(&self, request: &TreeRequest<'_>) -> Vec<bool> {
        let least = (request.need)(1);
        self.dead_switches.iter().zip(&self.usage.free_bytes).map(|(&dead, &free)| dead || free < least).collect()
    }

    /// Checks the members' own switches, of which every tree needs one for each member.
    fn check_entries(
        &self,
        members: &[Entries],
        request: &TreeRequest<'_>,
        excluded: &[bool],
    ) -> Result<(), TreeError> {
        let is_shut = |entries: &&Entries| entries.iter().all(|entry| excluded[entry.switch as usize]);
        match members.iter().find(is_shut) {
            Some(entries) => {
                let full = entries[0].switch;
                let beside = members.iter().filter(|other| other.iter().any(|entry| entry.switch == full)).count();
                Err(self.full(full as usize, beside, request))
            }
            None => Ok(()),
        }
    }

    fn full(&self, switch: usize, children: usize, request: &TreeRequest<'_>) -> TreeError {
        let (need, free) = ((request.need)(children), self.usage.free_bytes[switch]);
        TreeError::Full { switch: self.switch_name(switch), children, need, free }
    }

    fn no_root(&self, excluded: &[bool]) -> TreeError {
        let excluded = excluded.iter().enumerate().filter(|&(_, &excluded)| excluded);
        TreeError::NoRoot { excluded: excluded.map(|(switch, _)| self.switch_name(switch)).collect() }
    }

    /// The tree under one root that avoids switches without memory for as many children as they would have.
    fn tree_with_memory(
        &self,
        entries: &[Entries],
        root: NodeId,
        request: &TreeRequest<'_>,
        excluded: &[bool],
    ) -> Result<Tree, TreeError> {
        let (root, mut excluded, mut full) = (self.root_index(root)?, excluded.to_vec(), None);
        loop {
            let tree = self.tree_around(entries, root, 0, &excluded).map_err(|error| full.clone().unwrap_or(error))?;
            let Some((switch, children)) = self.lacks_memory(&tree, request, &self.usage) else { return Ok(tree) };
            let error = full.get_or_insert_with(|| self.full(switch, children, request)).clone();
            excluded[switch] = true;
            let is_shut = |entries: &Entries| entries.iter().all(|entry| excluded[entry.switch as usize]);
            if switch as u32 == root || entries.iter().any(is_shut) {
                return Err(error);
            }
        }
    }

    /// A switch with too little memory for a tree, and the number of children that it has in the tree.
    fn lacks_memory(&self, tree: &Tree, request: &TreeRequest<'_>, usage: &Usage) -> Option<(usize, usize)> {
        let entry = |switch: &TreeSwitch| (self.index(switch.node), switch.children.len());
        tree.switches.iter().map(entry).find(|&(switch, children)| (request.need)(children) > usage.free_bytes[switch])
    }

    /// The load of the fullest of a tree's cables between switches, and the sum of their loads.
    fn load_of(&self, tree: &Tree, usage: &Usage) -> (u64, u64) {
        let loads = || self.cables_between_switches(tree).into_iter().map(|cable| usage.load[cable]);
        (loads().max().unwrap_or(0), loads().fold(0, u64::saturating_add))
    }
}
