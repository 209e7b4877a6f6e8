//! Which switches have memory for a job's trees. Each switch is charged what its own trees need there, so that a tree is
//! planned around a full switch; where no tree is left, the job gets fewer slots.

use std::collections::BTreeMap;

use tributary_control::fabric::FabricLayout;
use tributary_control::trees::{DEFAULT_TREES, Network, Tree, TreeError, Wish};
use tributary_control::{Held, Holding, JobShape, Limits, is_charged_by_tree};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Protocol;

use super::job::{FabricJob, Request};
use super::planning;

/// The job with trees, each of which owns an equal share of its slots. `without`: switches that refuse it, each with the
/// reason.
pub fn fit_job<'a>(
    fabric: &FabricLayout,
    located: &FabricJob,
    dead_cables: &[usize],
    without: &BTreeMap<NodeId, String>,
    others: impl Iterator<Item = &'a FabricJob> + Clone,
) -> Result<FabricJob, TreeError> {
    let mut network = planning::network(fabric, dead_cables);
    without.keys().for_each(|&switch| network.set_switch(switch, false));
    others.clone().for_each(|job| network.add_load(&job.trees, planning::RATE));
    match is_charged_by_tree(located.job.protocol) {
        true => set_free_memory(&mut network, fabric, others),
        false => planning::exclude_small(&mut network, fabric, located)?,
    }
    let mut slots = located.job.config.slots;
    let mut job = loop {
        match with_slots(located, &network, fabric, slots) {
            Ok(job) => break job,
            Err(TreeError::Full { .. } | TreeError::NoRoot { .. } | TreeError::NoWay { .. })
                if slots / 2 >= Limits::MIN_SLOTS =>
            {
                slots /= 2;
            }
            Err(error) => return Err(error),
        }
    };
    job.around = around(fabric, &job, dead_cables, without, &network);
    Ok(job)
}

/// What a job holds of each switch; `None` if it is charged as if it were at all of them.
pub fn holding(job: &FabricJob) -> Option<Holding> {
    is_charged_by_tree(job.job.protocol).then(|| shape(job).holding(&job.trees))
}

/// What each switch has left beside these jobs.
fn set_free_memory<'a>(
    network: &mut Network,
    fabric: &FabricLayout,
    others: impl Iterator<Item = &'a FabricJob> + Clone,
) {
    let protocols: BTreeMap<u8, &Protocol> =
        others.clone().map(|job| (job.job.protocol.code, job.job.protocol)).collect();
    // What the jobs of a protocol share is at every switch; what no job uses is freed.
    let shared: u64 = protocols.values().map(|protocol| fabric.shared.bytes(protocol)).sum();
    let mut held = Held::default();
    others.for_each(|job| held.add(job.job.protocol, holding(job).as_ref(), || shape(job).bytes()));
    for switch in fabric.switches() {
        let held = shared.saturating_add(held.of(switch, planning::is_small(fabric, switch)));
        network.set_room(switch, fabric.memory_of(switch).saturating_sub(held));
    }
}

/// The job's sizes, as the control plane charges them for one switch that has all ranks.
fn shape(job: &FabricJob) -> JobShape {
    let config = &job.job.config;
    JobShape {
        protocol: job.job.protocol,
        slots: config.slots,
        elements_per_packet: config.elements_per_packet,
        world: config.world,
        children: config.world,
        neighbours: 0,
        shards: 1,
        trees: config.trees,
        servers: 0,
        options: config.options.clone(),
    }
}

/// The bytes that one of `trees` trees, which divide `slots` slots, takes of a switch with this number of children.
fn need(fabric: &FabricLayout, job: &FabricJob, slots: u16, trees: u16) -> impl Fn(usize) -> u64 + use<> {
    let leaf = |host: &NodeId| fabric.leaf_of(*host);
    let levels = job.hosts.windows(2).any(|pair| leaf(&pair[0]) != leaf(&pair[1]));
    let shape = is_charged_by_tree(job.job.protocol).then(|| JobShape { slots, trees, ..shape(job) });
    move |children| shape.as_ref().map_or(0, |shape| shape.tree_bytes(children, levels))
}

/// The job with this number of slots. Fewer trees than it wants have more slots each, so that they need more memory.
fn with_slots(
    located: &FabricJob,
    network: &Network,
    fabric: &FabricLayout,
    slots: u16,
) -> Result<FabricJob, TreeError> {
    let mut job = located.clone();
    let mut wanted_trees = located.job.trees;
    job.trees = loop {
        let request = Request { id: job.job.config.job, hosts: &job.hosts, trees: wanted_trees };
        let wanted = wanted_trees.unwrap_or(DEFAULT_TREES);
        let trees = planning::plan_over(network, &request, &need(fabric, located, slots, wanted))?;
        let count = (trees.len() as u16).min(slots);
        if wanted_trees == Some(count) {
            break trees;
        }
        wanted_trees = Some(count);
    };
    let (config, count) = (&mut job.job.config, job.trees.len() as u16);
    if slots < config.slots {
        job.job.most_slots = slots;
    }
    job.job.most_slots -= job.job.most_slots % count;
    config.slots = slots - slots % count;
    config.trees = count;
    config.levels = job.trees.iter().any(Tree::has_levels);
    Ok(job)
}

/// The switches that could have been in a tree and are not, each with the reason.
fn around(
    fabric: &FabricLayout,
    job: &FabricJob,
    dead_cables: &[usize],
    without: &BTreeMap<NodeId, String>,
    network: &Network,
) -> Vec<String> {
    let need = need(fabric, job, job.job.config.slots, job.job.config.trees);
    let is_dead = |switch: NodeId| {
        let mut ports = fabric.ports[switch.index()].iter().filter(|port| fabric.is_switch(port.to));
        ports.all(|port| dead_cables.contains(&port.cable))
    };
    let why = |(switch, children): (NodeId, usize)| {
        let (need, room, name) = (need(children), network.room(switch), fabric.name(switch));
        if job.trees.iter().any(|tree| tree.switch(switch).is_some()) {
            None
        } else if is_dead(switch) {
            Some(format!("{name} is dead"))
        } else if let Some(why) = without.get(&switch) {
            Some(format!("{name} does not take the job: {why}"))
        } else if !is_charged_by_tree(job.job.protocol) && planning::is_small(fabric, switch) {
            Some(format!("{name} has less memory than the jobs divide"))
        } else {
            (need > room).then(|| format!("{name} is full: a tree needs {need} bytes there, and {room} are free"))
        }
    };
    candidate_switches(fabric, &job.hosts).into_iter().filter_map(why).collect()
}

/// All switches of the trees that these hosts might have, with the most children that each would have.
fn candidate_switches(fabric: &FabricLayout, hosts: &[NodeId]) -> BTreeMap<NodeId, usize> {
    let network = planning::network(fabric, &[]);
    let wish = Wish { members: hosts, trees: 1, rate: planning::RATE, need: &|_| 0 };
    let roots = network.candidates(&wish).unwrap_or_default();
    let mut candidates = BTreeMap::new();
    for tree in roots.into_iter().filter_map(|root| network.tree(hosts, root).ok()) {
        for switch in &tree.switches {
            let children = candidates.entry(switch.node).or_insert(0);
            *children = switch.children.len().max(*children);
        }
    }
    candidates
}
