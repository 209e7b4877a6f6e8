//! How much of a fabric a job with planned trees gets. Each switch is charged what its own trees need there, so that a
//! tree is planned around a switch without memory; where no tree is left, the job gets fewer slots.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Protocol;

use crate::admission::charge::{TreeCharge, UsedMemory, is_charged_by_tree};
use crate::admission::job_shape::JobShape;
use crate::admission::limits::Limits;
use crate::trees::{DEFAULT_TREES, JOB_RATE, Tree, TreeError, TreeJob, TreePlanner, TreeRequest};

/// A job of a fabric, before or after its trees are planned.
#[derive(Clone)]
pub struct FabricShape<'a> {
    /// The job's sizes as they are charged for one switch that has all ranks.
    pub shape: JobShape,
    /// Id, hosts, and the number of trees on which the ranks insist.
    pub job: TreeJob<'a>,
    /// The job's trees; empty before they are planned.
    pub trees: &'a [Tree],
}

/// Trees that are granted to a job. Each owns an equal number of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeGrant {
    /// The trees, by number.
    pub trees: Vec<Tree>,
    /// The slots of all trees together.
    pub slots: u16,
    /// The most slots on which the job's members agree.
    pub most_slots: u16,
    /// The switches that could have been part of a tree and are not, each with the reason.
    pub avoided: Vec<String>,
}

impl FabricShape<'_> {
    /// What the job is charged at each switch; `None` if it is charged as if it were at all of them.
    pub fn charge(&self) -> Option<TreeCharge> {
        is_charged_by_tree(self.shape.protocol).then(|| self.shape.tree_charge(self.trees))
    }

    /// The bytes that one of `trees` trees, which divide `slots`, takes of a switch, by the number of its children there.
    fn need(&self, planner: &TreePlanner, slots: u16, trees: u16) -> impl Fn(usize) -> u64 + use<> {
        let leaf = |host: &NodeId| planner.leaf_of(*host);
        let levels = self.job.hosts.windows(2).any(|pair| leaf(&pair[0]) != leaf(&pair[1]));
        let shape = is_charged_by_tree(self.shape.protocol).then(|| JobShape { slots, trees, ..self.shape.clone() });
        move |children| shape.as_ref().map_or(0, |shape| shape.tree_bytes(children, levels))
    }
}

/// Grants trees to a job beside the other jobs of a fabric. `planner` knows what is dead and nothing of jobs; `without` are
/// the switches that do not take the job, each with the reason. `most_slots`: what the members have agreed on so far.
pub fn grant_trees<'a>(
    limits: &Limits,
    mut planner: TreePlanner,
    job: &FabricShape<'_>,
    most_slots: u16,
    without: &BTreeMap<NodeId, String>,
    others: impl Iterator<Item = FabricShape<'a>> + Clone,
) -> Result<TreeGrant, TreeError> {
    without.keys().for_each(|&switch| planner.set_switch(switch, false));
    others.clone().for_each(|other| planner.add_load(other.trees, JOB_RATE));
    match is_charged_by_tree(job.shape.protocol) {
        true => set_free_memory(&mut planner, limits, others),
        false => exclude_small(&mut planner, limits, job.job.hosts)?,
    }
    let mut slots = job.shape.slots;
    let mut grant = loop {
        match with_slots(job, &planner, slots, most_slots) {
            Ok(grant) => break grant,
            Err(TreeError::Full { .. } | TreeError::NoRoot { .. } | TreeError::NoWay { .. })
                if slots / 2 >= Limits::MIN_SLOTS =>
            {
                slots /= 2;
            }
            Err(error) => return Err(error),
        }
    };
    grant.avoided = avoided(limits, job, &grant, without, &planner);
    Ok(grant)
}

/// The job's trees, with new trees in place of those that use dead cables. Other trees stay. `None` if no tree uses a
/// dead cable, and an error if no other tree is possible.
pub fn repair_trees<'a>(
    limits: &Limits,
    mut planner: TreePlanner,
    job: &FabricShape<'_>,
    others: impl Iterator<Item = FabricShape<'a>>,
) -> Result<Option<Vec<Tree>>, TreeError> {
    let is_broken: Vec<bool> = job.trees.iter().map(|tree| uses_dead_cable(&planner, tree)).collect();
    if !is_broken.contains(&true) {
        return Ok(None);
    }
    others.for_each(|other| planner.add_load(other.trees, JOB_RATE));
    exclude_small(&mut planner, limits, job.job.hosts)?;
    let trees = || job.trees.iter().zip(&is_broken);
    for (tree, _) in trees().filter(|(_, broken)| !**broken) {
        planner.add_load(std::slice::from_ref(tree), JOB_RATE);
    }
    let mut repaired = Vec::with_capacity(job.trees.len());
    for (tree, &broken) in trees() {
        if !broken {
            repaired.push(tree.clone());
            continue;
        }
        let request = TreeRequest { members: job.job.hosts, trees: 1, rate: JOB_RATE, need: &|_| 0 };
        let roots = planner.candidates(&request)?;
        let other = planner.choose(&request, &roots)?;
        planner.add_load(&other, JOB_RATE);
        repaired.extend(other);
    }
    Ok(Some(repaired))
}

fn uses_dead_cable(planner: &TreePlanner, tree: &Tree) -> bool {
    let to_parent = tree.switches.iter().filter_map(|switch| Some((switch.node, switch.parent?.port)));
    to_parent.into_iter().any(|(node, port)| planner.is_dead(node, port))
}

/// Excludes switches with less memory than resizable jobs divide. An error if the job has members behind one.
fn exclude_small(planner: &mut TreePlanner, limits: &Limits, hosts: &[NodeId]) -> Result<(), TreeError> {
    for switch in planner.switches().filter(|&switch| limits.is_small(switch)) {
        let children = hosts.iter().filter(|&&host| planner.leaf_of(host) == Some(switch)).count();
        if children > 0 {
            let (need, free) = (limits.memory_bytes, limits.memory_of(switch));
            return Err(TreeError::Full { switch: planner.name(switch).to_owned(), children, need, free });
        }
        planner.set_switch(switch, false);
    }
    Ok(())
}

/// Sets what each switch has left beside these jobs.
fn set_free_memory<'a>(
    planner: &mut TreePlanner,
    limits: &Limits,
    others: impl Iterator<Item = FabricShape<'a>> + Clone,
) {
    let protocols: BTreeMap<u8, &'static Protocol> =
        others.clone().map(|job| (job.shape.protocol.code, job.shape.protocol)).collect();
    // What the jobs of a protocol share is at every switch; what no job uses makes way.
    let shared = limits.shared.bytes_of(protocols.values());
    let mut used = UsedMemory::default();
    others.for_each(|job| used.add(job.shape.protocol, job.charge().as_ref(), || job.shape.bytes()));
    for switch in planner.switches() {
        let used = shared.saturating_add(used.of(switch, limits.is_small(switch)));
        planner.set_free(switch, limits.memory_of(switch).saturating_sub(used));
    }
}

/// The job with this many slots. Fewer trees than it asks for have more slots each, so that they need more memory.
fn with_slots(
    job: &FabricShape<'_>,
    planner: &TreePlanner,
    slots: u16,
    most_slots: u16,
) -> Result<TreeGrant, TreeError> {
    let mut requested = job.job.trees;
    let trees = loop {
        let need = job.need(planner, slots, requested.unwrap_or(DEFAULT_TREES));
        let trees = planner.plan(TreeJob { trees: requested, ..job.job }, &need)?;
        let count = (trees.len() as u16).min(slots);
        if requested == Some(count) {
            break trees;
        }
        requested = Some(count);
    };
    let count = trees.len() as u16;
    let most_slots = if slots < job.shape.slots { slots } else { most_slots };
    let whole = |slots: u16| slots - slots % count;
    Ok(TreeGrant { trees, slots: whole(slots), most_slots: whole(most_slots), avoided: Vec::new() })
}

fn avoided(
    limits: &Limits,
    job: &FabricShape<'_>,
    grant: &TreeGrant,
    without: &BTreeMap<NodeId, String>,
    planner: &TreePlanner,
) -> Vec<String> {
    let need = job.need(planner, grant.slots, grant.trees.len() as u16);
    let why = |(switch, children): (NodeId, usize)| {
        let (need, free, name) = (need(children), planner.free(switch), planner.name(switch));
        if grant.trees.iter().any(|tree| tree.switch(switch).is_some()) {
            None
        } else if planner.is_cut_off(switch) {
            Some(format!("{name} is dead"))
        } else if let Some(why) = without.get(&switch) {
            Some(format!("{name} does not take the job: {why}"))
        } else if !is_charged_by_tree(job.shape.protocol) && limits.is_small(switch) {
            Some(format!("{name} has less memory than the jobs divide"))
        } else {
            (need > free).then(|| format!("{name} is full: a tree needs {need} bytes there, and {free} are free"))
        }
    };
    possible_switches(planner, job.job.hosts).into_iter().filter_map(why).collect()
}

/// All switches of the trees that these hosts might have, with the most children that each would have.
fn possible_switches(planner: &TreePlanner, hosts: &[NodeId]) -> BTreeMap<NodeId, usize> {
    let planner = planner.intact();
    let request = TreeRequest { members: hosts, trees: 1, rate: JOB_RATE, need: &|_| 0 };
    let roots = planner.candidates(&request).unwrap_or_default();
    let mut switches = BTreeMap::new();
    for tree in roots.into_iter().filter_map(|root| planner.tree(hosts, root).ok()) {
        for switch in &tree.switches {
            let children = switches.entry(switch.node).or_insert(0);
            *children = switch.children.len().max(*children);
        }
    }
    switches
}
