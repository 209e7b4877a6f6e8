//! Where the trees of a job run: the job as `control` grants it trees, and what people read of them.

use std::collections::BTreeMap;

use tributary_control::admission::{FabricShape, JobShape, TreeGrant, grant_trees, repair_trees};
use tributary_control::fabric::FabricLayout;
use tributary_control::trees::{Tree, TreeError, TreeJob};
use tributary_proto::contract::ids::NodeId;

use super::job::FabricJob;

impl FabricJob {
    /// Id, hosts and trees, for the planner.
    pub fn tree_job(&self) -> TreeJob<'_> {
        TreeJob { id: self.job.config.job, hosts: &self.hosts, trees: self.job.trees }
    }

    /// The job as admission sees it.
    pub fn shape(&self) -> FabricShape<'_> {
        let config = &self.job.config;
        let shape = JobShape {
            protocol: self.job.protocol,
            slots: config.slots,
            elements_per_packet: config.elements_per_packet,
            world_size: config.world_size,
            children: config.world_size,
            neighbours: 0,
            shards: 1,
            trees: config.trees,
            servers: 0,
            options: config.options.clone(),
        };
        FabricShape { shape, job: self.tree_job(), trees: &self.trees }
    }
}

/// The job with the trees that it is granted beside other jobs. `without`: switches that refuse it, each with the reason.
pub fn grant<'a>(
    fabric: &FabricLayout,
    located: &FabricJob,
    dead_cables: &[usize],
    without: &BTreeMap<NodeId, String>,
    others: impl Iterator<Item = &'a FabricJob> + Clone,
) -> Result<FabricJob, TreeError> {
    let (planner, others) = (fabric.planner(dead_cables), others.map(FabricJob::shape));
    let most_slots = located.job.most_slots;
    let grant = grant_trees(&fabric.limits(), planner, &located.shape(), most_slots, without, others)?;
    let TreeGrant { trees, slots, most_slots, avoided } = grant;
    let mut job = FabricJob { trees, around: avoided, ..located.clone() };
    job.job.most_slots = most_slots;
    job.job.config.slots = slots;
    job.job.config.trees = job.trees.len() as u16;
    job.job.config.levels = job.trees.iter().any(Tree::has_levels);
    Ok(job)
}

/// The job's trees, with new trees in place of those that use dead cables; see [`repair_trees`].
pub fn repair<'a>(
    fabric: &FabricLayout,
    job: &FabricJob,
    dead_cables: &[usize],
    others: impl Iterator<Item = &'a FabricJob>,
) -> Result<Option<Vec<Tree>>, TreeError> {
    repair_trees(&fabric.limits(), fabric.planner(dead_cables), &job.shape(), others.map(FabricJob::shape))
}

/// What the ranks of a job can do when one of its trees is broken.
pub fn advice(fabric: &FabricLayout, job: &FabricJob, dead_cables: &[usize]) -> String {
    let controller = fabric.controller;
    let cut_off =
        |port: &tributary_control::routes::Port| !fabric.is_switch(port.to) || dead_cables.contains(&port.cable);
    if fabric.ports[controller.index()].iter().all(cut_off) {
        return format!("connect again when {}, where jobs are formed, is started again", fabric.name(controller));
    }
    match fabric.planner(dead_cables).plan(job.tree_job(), &|_| 0) {
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
        tracing::info!(job = %job.job.name, tree = number, root = fabric.name(tree.root()), ?switches, "a tree is planned");
    }
    for why in &job.around {
        tracing::warn!(job = %job.job.name, %why, "its trees are planned around a switch");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tributary_proto::protocols;

    use super::super::testing;

    /// Two leaves below three spines, with a job of one host behind each over the first two spines.
    fn job() -> (Arc<FabricLayout>, FabricJob) {
        let fabric = testing::fabric("[leaf_spine]\nleaves = 2\nspines = 3\nhosts_per_leaf = 1\n");
        let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.survives_tree_loss).unwrap();
        let job = testing::job(&fabric, protocol, 3, &[0, 1], 2);
        (fabric, job)
    }

    /// Cables of a switch to its neighbours.
    fn cables(fabric: &FabricLayout, node: NodeId) -> Vec<usize> {
        fabric.ports[node.index()].iter().map(|port| port.cable).collect()
    }

    #[test]
    fn a_tree_that_has_lost_its_root_goes_over_the_least_used_one_and_the_other_stays() {
        let (fabric, job) = job();
        assert_eq!(repair(&fabric, &job, &[], [].iter()), Ok(None));
        let roots: Vec<NodeId> = job.trees.iter().map(Tree::root).collect();
        let unused = fabric.roots().into_iter().find(|root| !roots.contains(root)).unwrap();
        let dead = cables(&fabric, roots[1]);
        let trees = repair(&fabric, &job, &dead, [].iter()).unwrap().unwrap();
        assert_eq!((&trees[0], trees[1].root()), (&job.trees[0], unused));
        // The ranks know their positions at their own switches, so these stay the same.
        assert_eq!(trees[1].positions, job.trees[1].positions);
        let dead: Vec<usize> = [roots[1], unused].into_iter().flat_map(|root| cables(&fabric, root)).collect();
        let trees = repair(&fabric, &job, &dead, [].iter()).unwrap().unwrap();
        assert_eq!([trees[0].root(), trees[1].root()], [roots[0]; 2]);
    }

    #[test]
    fn where_no_way_is_left_there_is_no_plan() {
        let (fabric, job) = job();
        let dead: Vec<usize> = fabric.roots().into_iter().flat_map(|root| cables(&fabric, root)).collect();
        assert!(repair(&fabric, &job, &dead, [].iter()).is_err());
    }
}
