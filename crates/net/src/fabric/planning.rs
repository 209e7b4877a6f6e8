//! Where the trees of a job run, chosen by the planner of `control`: over cables that are alive, beside the trees that
//! run already. [`super::tree_capacity`] adds what switches have memory for.

use tributary_control::fabric::FabricLayout;
use tributary_control::trees::{DEFAULT_TREES, Network, Tree, TreeError, TreeParent, TreeSwitch, Wish};
use tributary_proto::contract::ids::NodeId;

use super::job::{FabricJob, Request};

/// The load of a job: the same as of any other.
pub(super) const RATE: u64 = 1 << 20;

/// The fabric as trees are planned over it.
pub(super) fn network(fabric: &FabricLayout, dead_cables: &[usize]) -> Network {
    let names = fabric.nodes.iter().map(|node| node.name.clone()).collect();
    let mut network = Network::new(fabric.cabling.clone(), names);
    dead_cables.iter().for_each(|&cable| network.set_cable(cable, false));
    network
}

/// The job's trees, as if every switch had memory for them. They avoid dead cables.
pub fn plan(fabric: &FabricLayout, request: &Request<'_>, dead_cables: &[usize]) -> Result<Vec<Tree>, TreeError> {
    plan_over(&network(fabric, dead_cables), request, &|_| 0)
}

/// The job's trees over this network. `need`: the bytes that a tree takes of a switch with this number of children.
pub(super) fn plan_over(
    network: &Network,
    request: &Request<'_>,
    need: &dyn Fn(usize) -> u64,
) -> Result<Vec<Tree>, TreeError> {
    let members = request.hosts;
    let mut wish = Wish { members, trees: request.trees.unwrap_or(DEFAULT_TREES), rate: RATE, need };
    let mut roots = network.candidates(&wish)?;
    wish.trees = request.trees.unwrap_or(DEFAULT_TREES.min(roots.len() as u16));
    // Jobs that see equal loads begin with different roots.
    let first = request.id.index() % roots.len();
    roots.rotate_left(first);
    network.choose(&wish, &roots)
}

/// The job's trees, with new trees in place of those that use dead cables. Other trees stay. `None` if no tree uses a
/// dead cable, and an error if there is no other route.
pub fn replan<'a>(
    fabric: &FabricLayout,
    job: &FabricJob,
    dead_cables: &[usize],
    others: impl Iterator<Item = &'a FabricJob>,
) -> Result<Option<Vec<Tree>>, TreeError> {
    let cable = |switch: &TreeSwitch, parent: TreeParent| {
        let ports = fabric.ports.get(switch.node.index())?;
        Some(ports.get(parent.port.index())?.cable)
    };
    let is_dead = |switch: &TreeSwitch| {
        switch.parent.and_then(|parent| cable(switch, parent)).is_some_and(|cable| dead_cables.contains(&cable))
    };
    let stands = |tree: &Tree| !tree.switches.iter().any(is_dead);
    if job.trees.iter().all(stands) {
        return Ok(None);
    }
    let mut network = network(fabric, dead_cables);
    others.for_each(|other| network.add_load(&other.trees, RATE));
    exclude_small(&mut network, fabric, job)?;
    let mut trees = Vec::with_capacity(job.trees.len());
    for tree in job.trees.iter().filter(|tree| stands(tree)) {
        network.add_load(std::slice::from_ref(tree), RATE);
    }
    for tree in &job.trees {
        if stands(tree) {
            trees.push(tree.clone());
            continue;
        }
        let wish = Wish { members: &job.hosts, trees: 1, rate: RATE, need: &|_| 0 };
        let roots = network.candidates(&wish)?;
        let other = network.choose(&wish, &roots)?;
        network.add_load(&other, RATE);
        trees.extend(other);
    }
    Ok(Some(trees))
}

/// Excludes switches with less memory than jobs divide. An error if the job has members behind one.
pub(super) fn exclude_small(network: &mut Network, fabric: &FabricLayout, job: &FabricJob) -> Result<(), TreeError> {
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

pub(super) fn is_small(fabric: &FabricLayout, switch: NodeId) -> bool {
    fabric.memory_of(switch) < fabric.memory_bytes
}

/// True if the planned trees are as many as there would be if every cable were alive.
pub fn is_whole(fabric: &FabricLayout, request: &Request<'_>, planned: &Result<Vec<Tree>, TreeError>) -> bool {
    let whole = plan(fabric, request, &[]);
    match (planned, whole) {
        (Ok(planned), Ok(whole)) => planned.len() >= whole.len(),
        (Err(_), Ok(_)) => false,
        (_, Err(_)) => true,
    }
}

/// What the ranks of a job can do when one of its trees is broken.
pub fn advice(fabric: &FabricLayout, job: &FabricJob, dead_cables: &[usize]) -> String {
    let controller = fabric.seat;
    let cut_off =
        |port: &tributary_control::routes::Port| !fabric.is_switch(port.to) || dead_cables.contains(&port.cable);
    if fabric.ports[controller.index()].iter().all(cut_off) {
        return format!("connect again when {}, where jobs are formed, is started again", fabric.name(controller));
    }
    let request = Request { id: job.job.config.job, hosts: &job.hosts, trees: job.job.trees };
    match plan(fabric, &request, dead_cables) {
        Ok(trees) => {
            let mut roots: Vec<&str> = trees.iter().map(|tree| fabric.name(tree.root())).collect();
            roots.sort_unstable();
            format!("connect again to run over {}", roots.join(" and "))
        }
        Err(error) => format!("no other route is left ({error}): start it again, then connect again"),
    }
}

/// Logs the trees that were chosen for a job.
pub fn log(fabric: &FabricLayout, job: &FabricJob) {
    for (number, tree) in job.trees.iter().enumerate() {
        let switches: Vec<&str> = tree.switches.iter().map(|switch| fabric.name(switch.node)).collect();
        tracing::info!(job = %job.name, tree = number, root = fabric.name(tree.root()), ?switches, "a tree is planned");
    }
    for why in &job.around {
        tracing::warn!(job = %job.name, %why, "its trees are planned around a switch");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_control::JobName;
    use tributary_control::fabric::FabricFile;
    use tributary_proto::contract::config::JobConfig;
    use tributary_proto::contract::ids::{JobId, JobKey};
    use tributary_proto::protocols;

    use crate::shard::JobInstall;

    /// Two leaves below three spines, with a job of one host behind each over the first two spines.
    fn job() -> (FabricLayout, FabricJob) {
        let text = "secret = \"0123456789abcdef\"\n[leaf_spine]\nleaves = 2\nspines = 3\nhosts_per_leaf = 1\n";
        let fabric = FabricFile::parse(text).unwrap();
        let hosts = [0, 1].map(NodeId);
        let trees = plan(&fabric, &Request { id: JobId(3), hosts: &hosts, trees: Some(2) }, &[]).unwrap();
        let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.replants).unwrap();
        let config = JobConfig {
            job: JobId(3),
            key: JobKey(1),
            protocol: protocol.code,
            world: 2,
            slots: 8,
            elements_per_packet: 64,
            trees: 2,
            levels: true,
            options: protocol.options.defaults(),
        };
        let members = (1..3).map(|host| ([10, 77, 0, host], 4_000).into()).collect();
        let job = JobInstall::of_workers(protocol, config, members, [10, 77, 128, 1].into());
        let (name, hosts) = (JobName::new("sum").unwrap(), hosts.to_vec());
        (fabric, FabricJob { name, job, hosts, server_hosts: Vec::new(), trees, around: Vec::new() })
    }

    /// Cables of a switch to its neighbours.
    fn cables(fabric: &FabricLayout, node: NodeId) -> Vec<usize> {
        fabric.ports[node.index()].iter().map(|port| port.cable).collect()
    }

    #[test]
    fn a_tree_that_has_lost_its_root_goes_over_the_least_used_one_and_the_other_stays() {
        let (fabric, job) = job();
        assert_eq!(replan(&fabric, &job, &[], [].iter()), Ok(None));
        let roots: Vec<NodeId> = job.trees.iter().map(Tree::root).collect();
        let unused = fabric.roots().into_iter().find(|root| !roots.contains(root)).unwrap();
        let dead = cables(&fabric, roots[1]);
        let trees = replan(&fabric, &job, &dead, [].iter()).unwrap().unwrap();
        assert_eq!((&trees[0], trees[1].root()), (&job.trees[0], unused));
        // The ranks know their places at their own switches, so these places stay the same.
        assert_eq!(trees[1].places, job.trees[1].places);
        let dead: Vec<usize> = [roots[1], unused].into_iter().flat_map(|root| cables(&fabric, root)).collect();
        let trees = replan(&fabric, &job, &dead, [].iter()).unwrap().unwrap();
        assert_eq!([trees[0].root(), trees[1].root()], [roots[0]; 2]);
    }

    #[test]
    fn where_no_way_is_left_there_is_no_plan() {
        let (fabric, job) = job();
        let dead: Vec<usize> = fabric.roots().into_iter().flat_map(|root| cables(&fabric, root)).collect();
        assert!(replan(&fabric, &job, &dead, [].iter()).is_err());
    }
}
