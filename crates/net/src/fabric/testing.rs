//! For tests: fabrics, and jobs on their hosts.

use std::sync::Arc;

use tributary_control::JobName;
use tributary_control::fabric::{FabricFile, FabricLayout};
use tributary_control::trees::TreeJob;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{JobId, JobKey, NodeId};
use tributary_proto::contract::protocol::Protocol;

use super::job::FabricJob;
use crate::shard::JobInstall;

/// The first leaf of [`leaf_spine`]. Its hosts are at ports 0 and 1, and the spines at the ports after that.
pub const LEAF: NodeId = NodeId(4);

/// The fabric of a file with these lines.
pub fn fabric(lines: &str) -> Arc<FabricLayout> {
    Arc::new(FabricFile::parse(&format!("secret = \"0123456789abcdef\"\n{lines}")).unwrap())
}

/// Two leaves with two hosts each, below two spines, in a file with these keys.
pub fn leaf_spine(keys: &str) -> Arc<FabricLayout> {
    fabric(&format!("network = \"127.77.0.0\"\n{keys}\n[leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n"))
}

/// A job of this many ranks and trees.
pub fn config(protocol: &Protocol, job: u16, world_size: usize, trees: u16) -> JobConfig {
    JobConfig {
        job: JobId(job),
        key: JobKey(7),
        protocol: protocol.code,
        world_size: world_size as u16,
        slots: 8,
        elements_per_packet: 64,
        trees: trees.max(1),
        levels: trees > 0,
        options: protocol.options.defaults(),
    }
}

/// A job with a rank on each of these hosts, and with this many trees over the fabric.
pub fn job(fabric: &FabricLayout, protocol: &'static Protocol, id: u16, hosts: &[u32], trees: u16) -> FabricJob {
    let hosts: Vec<NodeId> = hosts.iter().copied().map(NodeId).collect();
    let request = TreeJob { id: JobId(id), hosts: &hosts, trees: Some(trees) };
    let planned = (trees > 0).then(|| fabric.planner(&[]).plan(request, &|_| 0).unwrap());
    let members = hosts.iter().map(|host| (fabric.nodes[host.index()].address, 4_000).into()).collect();
    let switch = fabric.udp(fabric.leaf_of(hosts[0])).ip();
    let (name, config) = (JobName::new("sum").unwrap(), config(protocol, id, hosts.len(), trees));
    let job = JobInstall::of_workers(name, protocol, config, members, switch);
    FabricJob { job, hosts, server_hosts: Vec::new(), trees: planned.unwrap_or_default(), around: Vec::new() }
}
