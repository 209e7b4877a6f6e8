//! Where the trees of a job run, by the planner of `control`: over what is alive, beside what runs already.

use tributary_control::fabric::FabricLayout;
use tributary_control::trees::{Network, Tree, TreeError, Wish};
use tributary_proto::contract::ids::{JobId, NodeId};

use super::job::FabricJob;

/// Trees of a job that asks for no number, where there are so many.
const DEFAULT_TREES: u16 = 4;
/// What a job is expected to send: the same as any other.
const RATE: u64 = 1 << 20;

/// The fabric as trees are planned over it.
fn network(fabric: &FabricLayout, dead_cables: &[usize]) -> Network {
    let names = fabric.nodes.iter().map(|node| node.name.clone()).collect();
    let mut network = Network::new(fabric.cabling.clone(), names);
    dead_cables.iter().for_each(|&cable| network.set_cable(cable, false));
    network
}

/// What a job needs to know to be planned.
pub struct Request<'a> {
    pub id: JobId,
    /// The hosts, by rank.
    pub hosts: &'a [NodeId],
    /// The number of trees, if its ranks insist on one.
    pub trees: Option<u16>,
}

/// The job's trees, around dead cables and switches that do not take it, and beside those of other jobs.
pub fn plan<'a>(
    fabric: &FabricLayout,
    request: &Request<'_>,
    dead_cables: &[usize],
    without: &[NodeId],
    others: impl Iterator<Item = &'a FabricJob>,
) -> Result<Vec<Tree>, TreeError> {
    let mut network = network(fabric, dead_cables);
    without.iter().for_each(|&switch| network.set_switch(switch, false));
    others.for_each(|job| network.add_load(&job.trees, RATE));
    // The control plane has admitted the job with all of its memory on one switch, which is more than a tree takes.
    let members = request.hosts;
    let mut wish = Wish { members, trees: request.trees.unwrap_or(DEFAULT_TREES), rate: RATE, need: &|_| 0 };
    let mut roots = network.candidates(&wish)?;
    wish.trees = request.trees.unwrap_or(DEFAULT_TREES.min(roots.len() as u16));
    // Jobs that find equal loads begin with different roots.
    let first = request.id.index() % roots.len();
    roots.rotate_left(first);
    network.choose(&wish, &roots)
}

/// As many trees as the job wants would be there if every cable were alive.
pub fn is_whole(fabric: &FabricLayout, request: &Request<'_>, planned: &Result<Vec<Tree>, TreeError>) -> bool {
    let whole = plan(fabric, request, &[], &[], std::iter::empty());
    match (planned, whole) {
        (Ok(planned), Ok(whole)) => planned.len() >= whole.len(),
        (Err(_), Ok(_)) => false,
        (_, Err(_)) => true,
    }
}

/// What the ranks of a job can do whose tree is broken.
pub fn advice(fabric: &FabricLayout, job: &FabricJob, dead_cables: &[usize]) -> String {
    let seat = fabric.seat;
    let cut_off =
        |port: &tributary_control::routes::Port| !fabric.is_switch(port.to) || dead_cables.contains(&port.cable);
    if fabric.ports[seat.index()].iter().all(cut_off) {
        return format!("connect again when {}, where jobs are formed, is started again", fabric.name(seat));
    }
    let request = Request { id: job.job.config.job, hosts: &job.hosts, trees: job.job.trees };
    match plan(fabric, &request, dead_cables, &[], std::iter::empty()) {
        Ok(trees) => {
            let mut roots: Vec<&str> = trees.iter().map(|tree| fabric.name(tree.root())).collect();
            roots.sort_unstable();
            format!("connect again to run over {}", roots.join(" and "))
        }
        Err(error) => format!("no other way is left ({error}): start it again, then connect again"),
    }
}
