//! A job of a fabric: its endpoints, its static trees, and what its trees are planned from.

use std::net::SocketAddr;

use tributary_control::fabric::FabricLayout;
use tributary_control::trees::Tree;
use tributary_proto::contract::ids::NodeId;

use crate::shard::JobInstall;

/// A job as the controller has planned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricJob {
    /// Name, protocol, sizes, key, and the UDP address of each member. Each tree owns the slots of a shard.
    pub job: JobInstall,
    /// The host of each member, by rank.
    pub hosts: Vec<NodeId>,
    /// The host of each server, by number.
    pub server_hosts: Vec<NodeId>,
    /// The job's static trees, by number; empty for protocols that find their trees themselves.
    pub trees: Vec<Tree>,
    /// The switches around which these are planned, each with the reason.
    pub around: Vec<String>,
}

impl AsRef<JobInstall> for FabricJob {
    fn as_ref(&self) -> &JobInstall {
        &self.job
    }
}

impl FabricJob {
    /// The hosts of all members, and then of all servers.
    pub fn endpoints(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.hosts.iter().chain(&self.server_hosts).copied()
    }

    /// Each member's host and address, and then each server's.
    pub fn endpoint_addrs(&self) -> Vec<(NodeId, SocketAddr)> {
        let JobInstall { members, servers, .. } = &self.job;
        self.endpoints().zip(members.iter().copied().chain(servers.iter().map(|server| server.addr))).collect()
    }

    /// The switches without which the job cannot run: the switches of its trees, or those with members or servers.
    pub fn needs(&self, fabric: &FabricLayout) -> Vec<NodeId> {
        let leaves = self.endpoints().map(|host| fabric.leaf_of(host));
        let trees = self.trees.iter().flat_map(|tree| &tree.switches).map(|switch| switch.node);
        let mut nodes: Vec<NodeId> = leaves.chain(trees).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// True for the switches that get the job. If the job has operators, which other switches may not serve, these are
    /// the switches that it needs; otherwise all switches.
    pub fn is_for(&self, fabric: &FabricLayout, node: NodeId) -> bool {
        self.job.config.options.operators().is_empty() || self.needs(fabric).contains(&node)
    }

    /// True if sums of the job are lost with this switch.
    pub fn is_lost_with(&self, node: NodeId) -> bool {
        !self.job.protocol.survives_tree_loss && self.trees.iter().any(|tree| tree.switch(node).is_some())
    }

    /// The error for every rank: the first broken tree, the switch or cable that it used (`what`), the reason (`why`, as in
    /// "which is dead"), and the advice.
    pub fn broken_by(&self, tree: usize, what: &str, why: &str, advice: &str) -> String {
        format!("tree {tree} of job \"{}\" ran {what}, {why}; {advice}", self.job.name)
    }
}

/// What ranks are told when an operator stops a switch of the fabric.
pub fn stopping(fabric: &FabricLayout, node: NodeId) -> String {
    let name = fabric.name(node);
    format!("switch {name} is stopping, as its operator has asked it to: connect again when it is back")
}
