//! Which switches have room for a job's trees. Each switch is charged what its own trees need there, so that a tree is
//! planned around a switch without room; where no tree is left, the job gets fewer slots.

use std::collections::BTreeMap;

use tributary_control::fabric::FabricLayout;
use tributary_control::trees::{DEFAULT_TREES, Network, Tree, TreeError, Wish};
use tributary_control::{Held, Holding, JobShape, Limits, is_charged_by_tree};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Protocol;

use super::job::FabricJob;
use super::planning::{self, Request};

/// The job with trees, each of which owns an equal part of its slots. `without`: switches that do not take it in, each
/// with the reason.
pub fn house<'a>(
    fabric: &FabricLayout,
    placed: &FabricJob,
    dead_cables: &[usize],
    without: &BTreeMap<NodeId, String>,
    others: impl Iterator<Item = &'a FabricJob> + Clone,
) -> Result<FabricJob, TreeError> {
    let mut network = planning::network(fabric, dead_cables);
    without.keys().for_each(|&switch| network.set_switch(switch, false));
    others.clone().for_each(|job| network.add_load(&job.trees, planning::RATE));
    match is_charged_by_tree(placed.job.protocol) {
        true => set_rooms(&mut network, fabric, others),
        false => shut_small(&mut network, fabric, placed)?,
    }
    let mut slots = placed.job.config.slots;
    let mut job = loop {
        match with_slots(placed, &network, fabric, slots) {
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

/// Shuts switches with less memory than jobs divide. An error if the job has members behind one.
pub(super) fn shut_small(network: &mut Network, fabric: &FabricLayout, job: &FabricJob) -> Result<(), TreeError> {
    for switch in fabric.switches().filter(|&switch| is_small(fabric, switch)) {
        let children = job.hosts.iter().filter(|&&host| fabric.leaf_of(host) == switch).count();
        if children > 0 {
            let (need, room) = (fabric.memory_bytes, fabric.memory_of(switch));
            return Err(TreeError::Full { switch: fabric.name(switch).to_owned(), children, need, room });
        }
        network.set_switch(switch, false);
    }
    Ok(())
}

fn is_small(fabric: &FabricLayout, switch: NodeId) -> bool {
    fabric.memory_of(switch) < fabric.memory_bytes
}

/// What each switch has left beside these jobs.
fn set_rooms<'a>(network: &mut Network, fabric: &FabricLayout, others: impl Iterator<Item = &'a FabricJob> + Clone) {
    let protocols: BTreeMap<u8, &Protocol> =
        others.clone().map(|job| (job.job.protocol.code, job.job.protocol)).collect();
    // What the jobs of a protocol share is at every switch; what no job uses makes way.
    let shared: u64 = protocols.values().map(|protocol| fabric.shared.bytes(protocol)).sum();
    let mut held = Held::default();
    others.for_each(|job| held.add(job.job.protocol, holding(job).as_ref(), || shape(job).bytes()));
    for switch in fabric.switches() {
        let held = shared.saturating_add(held.of(switch, is_small(fabric, switch)));
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
        world: config.world_size,
        children: config.world_size,
        neighbours: 0,
        shards: 1,
        trees: config.trees,
        servers: 0,
        options: config.options.clone(),
    }
}

/// The bytes that one of so many trees, which divide so many slots, takes of a switch with so many children.
fn need(fabric: &FabricLayout, job: &FabricJob, slots: u16, trees: u16) -> impl Fn(usize) -> u64 + use<> {
    let leaf = |host: &NodeId| fabric.leaf_of(*host);
    let levels = job.hosts.windows(2).any(|pair| leaf(&pair[0]) != leaf(&pair[1]));
    let shape = is_charged_by_tree(job.job.protocol).then(|| JobShape { slots, trees, ..shape(job) });
    move |children| shape.as_ref().map_or(0, |shape| shape.tree_bytes(children, levels))
}

/// The job with so many slots. Fewer trees than it wants have more slots each, so that they need more room.
fn with_slots(
    placed: &FabricJob,
    network: &Network,
    fabric: &FabricLayout,
    slots: u16,
) -> Result<FabricJob, TreeError> {
    let mut job = placed.clone();
    let mut asked = placed.job.trees;
    job.trees = loop {
        let request = Request { id: job.job.config.job, hosts: &job.hosts, trees: asked };
        let wanted = asked.unwrap_or(DEFAULT_TREES);
        let trees = planning::plan_over(network, &request, &need(fabric, placed, slots, wanted))?;
        let count = (trees.len() as u16).min(slots);
        if asked == Some(count) {
            break trees;
        }
        asked = Some(count);
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

/// The switches that could have been part of a tree and are not, each with the reason.
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
        } else if !is_charged_by_tree(job.job.protocol) && is_small(fabric, switch) {
            Some(format!("{name} has less memory than the jobs divide"))
        } else {
            (need > room).then(|| format!("{name} is full: a tree needs {need} bytes there, and {room} are free"))
        }
    };
    ways(fabric, &job.hosts).into_iter().filter_map(why).collect()
}

/// All switches of the trees that these hosts might have, with the most children that each would have.
fn ways(fabric: &FabricLayout, hosts: &[NodeId]) -> BTreeMap<NodeId, usize> {
    let network = planning::network(fabric, &[]);
    let wish = Wish { members: hosts, trees: 1, rate: planning::RATE, need: &|_| 0 };
    let roots = network.candidates(&wish).unwrap_or_default();
    let mut ways = BTreeMap::new();
    for tree in roots.into_iter().filter_map(|root| network.tree(hosts, root).ok()) {
        for switch in &tree.switches {
            let children = ways.entry(switch.node).or_insert(0);
            *children = switch.children.len().max(*children);
        }
    }
    ways
}
