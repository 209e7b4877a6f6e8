//! Where the members and servers of a job are in a fabric, each on a host of its own, and what they learn of it.

use std::net::SocketAddr;

use tributary_control::fabric::FabricLayout;
use tributary_control::trees::Tree;
use tributary_control::{JobName, Plan};
use tributary_proto::contract::ids::{NodeId, ServerId};

use super::job::FabricJob;
use crate::api::{FabricReply, ServedInFabric};
use crate::shard::{JobInstall, ShardError};

/// A job with the hosts of its members and servers, before its trees are planned; an error says who cannot join.
pub fn locate(fabric: &FabricLayout, name: JobName, job: JobInstall) -> Result<FabricJob, ShardError> {
    let ranks = job.members.iter().enumerate().map(|(rank, &at)| (format!("rank {rank}"), at));
    let servers = job.servers.iter().enumerate().map(|(number, server)| (format!("server {number}"), server.addr));
    let mut endpoints: Vec<(String, NodeId)> = Vec::with_capacity(job.members.len() + job.servers.len());
    for (who, at) in ranks.chain(servers) {
        let host = host_at(fabric, at).ok_or_else(|| {
            ShardError::Fabric(format!(
                "{who} comes from {}, which is not a host of the fabric: start it on one, and name the switch that the host is \
                 connected to",
                at.ip()
            ))
        })?;
        if let Some((other, _)) = endpoints.iter().find(|&&(_, there)| there == host) {
            let name = fabric.name(host);
            return Err(ShardError::Fabric(format!(
                "{other} and {who} are both on {name}: a job has one rank or one server on a host of a fabric"
            )));
        }
        endpoints.push((who, host));
    }
    let mut hosts: Vec<NodeId> = endpoints.into_iter().map(|(_, host)| host).collect();
    let server_hosts = hosts.split_off(job.members.len());
    Ok(FabricJob { name, job, hosts, server_hosts, trees: Vec::new(), around: Vec::new() })
}

/// What a member learns of the fabric and of its position in the job's trees; `None` if the job has no such rank.
pub fn member_reply(fabric: &FabricLayout, job: &FabricJob, rank: u16) -> Option<FabricReply> {
    let own = *job.hosts.get(usize::from(rank))?;
    let cable = fabric.cables[fabric.ports[own.index()].first()?.cable];
    let (hosts, leaves) = numbers(fabric, job.endpoints());
    Some(FabricReply {
        leaf: fabric.udp(fabric.leaf_of(own)),
        hosts,
        leaves,
        roots: fabric.roots().into_iter().map(|root| root.0).collect(),
        trees: job.trees.iter().map(|tree| tree.positions[usize::from(rank)].child.0).collect(),
        levels: job.trees.iter().any(Tree::has_levels),
        lossless_bits_per_s: fabric.lossless.and(cable.bits_per_s),
    })
}

/// What a server of a job learns of the fabric; `None` if a member or server is not on a host of it.
pub fn server_reply(fabric: &FabricLayout, plan: &Plan, server: ServerId) -> Option<ServedInFabric> {
    let servers = plan.servers.dedicated().iter().map(|server| server.addr);
    let endpoints = plan.workers.iter().copied().chain(servers).map(|at| host_at(fabric, at));
    let endpoints = endpoints.collect::<Option<Vec<NodeId>>>()?;
    let own = *endpoints.get(plan.workers.len() + server.index())?;
    let (hosts, leaves) = numbers(fabric, endpoints.into_iter());
    Some(ServedInFabric { leaf: fabric.udp(fabric.leaf_of(own)), hosts, leaves })
}

/// The numbers of hosts, and of the switches that these are connected to.
fn numbers(fabric: &FabricLayout, endpoints: impl Iterator<Item = NodeId>) -> (Vec<u32>, Vec<u32>) {
    endpoints.map(|host| (host.0, fabric.leaf_of(host).0)).unzip()
}

/// The host with this address.
pub fn host_at(fabric: &FabricLayout, at: SocketAddr) -> Option<NodeId> {
    fabric.node_at(at.ip()).filter(|&node| !fabric.is_switch(node))
}

#[cfg(test)]
mod tests {
    use tributary_control::fabric::FabricFile;
    use tributary_control::servers::JobServer;
    use tributary_proto::contract::config::JobConfig;
    use tributary_proto::contract::ids::{JobId, JobKey};
    use tributary_proto::protocols;

    use super::*;

    /// The outcome for ranks and servers at these hosts of a leaf with four.
    fn located(ranks: &[u8], servers: &[u8]) -> Result<(Vec<NodeId>, Vec<NodeId>), String> {
        let text = "secret = \"0123456789abcdef\"\n[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 4\n";
        let fabric = FabricFile::parse(text).unwrap();
        let at = |host: u8, port| SocketAddr::from(([10, 77, 0, host + 1], port));
        let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.shared.is_some()).unwrap();
        let config = JobConfig {
            job: JobId(1),
            key: JobKey(1),
            protocol: protocol.code,
            world_size: ranks.len() as u16,
            slots: 8,
            elements_per_packet: 64,
            trees: 1,
            levels: false,
            options: protocol.options.defaults(),
        };
        let members = ranks.iter().map(|&host| at(host, 4_000)).collect();
        let servers = servers.iter().map(|&host| JobServer { addr: at(host, 4_242), incarnation: Some(host.into()) });
        let job = JobInstall {
            servers: servers.collect(),
            ..JobInstall::of_workers(protocol, config, members, [10, 77, 128, 1].into())
        };
        let found = locate(&fabric, JobName::new("sum").unwrap(), job).map_err(|error| error.to_string())?;
        Ok((found.hosts, found.server_hosts))
    }

    #[test]
    fn each_rank_and_each_server_is_on_a_host_of_its_own() {
        let nodes = |hosts: &[u32]| hosts.iter().copied().map(NodeId).collect::<Vec<_>>();
        assert_eq!(located(&[2, 0], &[3, 1]), Ok((nodes(&[2, 0]), nodes(&[3, 1]))));
        let one_each = "a job has one rank or one server on a host of a fabric";
        assert_eq!(located(&[1, 1], &[]), Err(format!("rank 0 and rank 1 are both on host1: {one_each}")));
        assert_eq!(located(&[0, 1], &[1]), Err(format!("rank 1 and server 0 are both on host1: {one_each}")));
        assert!(located(&[0], &[9]).unwrap_err().starts_with("server 0 comes from 10.77.0.10, which is not a host"));
    }
}
