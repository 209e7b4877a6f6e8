//! Where the members and servers of a job are in a fabric, each on a host of its own, and what they learn of it.

use std::net::{IpAddr, SocketAddr};

use axum::http::StatusCode;
use tributary_control::Plan;
use tributary_control::fabric::FabricLayout;
use tributary_control::trees::Tree;
use tributary_proto::contract::ids::{NodeId, ServerId};

use super::job::FabricJob;
use crate::api::error::ApiError;
use crate::api::{FabricReply, ServedInFabric};
use crate::shard::{JobInstall, ShardError};

/// A job with the hosts of its members and servers, before its trees are planned; an error says who cannot join.
pub fn locate(fabric: &FabricLayout, job: JobInstall) -> Result<FabricJob, ShardError> {
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
    Ok(FabricJob { job, hosts, server_hosts, trees: Vec::new(), around: Vec::new() })
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

/// Checks that servers may be at this address, for one whose request comes from `from`. A server reads the tensors of the
/// jobs that it serves, and can end these jobs.
pub fn may_serve(fabric: &FabricLayout, at: IpAddr, from: IpAddr) -> Result<(), ApiError> {
    let host_of = |address: IpAddr| fabric.node_at(address).filter(|node| fabric.servers.contains(node));
    let named: Vec<&str> = fabric.servers.iter().map(|&node| fabric.name(node)).collect();
    let refused = |addr: IpAddr| {
        let hosts = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
        let error = format!(
            "this fabric takes servers from the hosts that its file names (servers = [...]: {hosts}), and {addr} is not one of them: \
             name the host there, in the file of every switch"
        );
        Err(ApiError::new(StatusCode::FORBIDDEN, "not_a_server", error))
    };
    match (host_of(at), host_of(from)) {
        (None, _) => refused(at),
        // Only processes on a switch's own machine have such an address.
        (Some(_), _) if from.is_loopback() => Ok(()),
        (Some(_), None) => refused(from),
        (Some(theirs), Some(own)) if theirs != own => refused(at),
        (Some(_), Some(_)) => Ok(()),
    }
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
    use tributary_control::JobName;
    use tributary_control::servers::JobServer;
    use tributary_proto::protocols;

    use super::super::testing;
    use super::*;

    /// The outcome for ranks and servers at these hosts of a leaf with four.
    fn located(ranks: &[u8], servers: &[u8]) -> Result<(Vec<NodeId>, Vec<NodeId>), String> {
        let fabric = testing::fabric("[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 4\n");
        let at = |host: u8, port| SocketAddr::from(([10, 77, 0, host + 1], port));
        let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.shared.is_some()).unwrap();
        let config = testing::config(protocol, 1, ranks.len(), 0);
        let members = ranks.iter().map(|&host| at(host, 4_000)).collect();
        let servers = servers.iter().map(|&host| JobServer { addr: at(host, 4_242), incarnation: Some(host.into()) });
        let job = JobInstall {
            servers: servers.collect(),
            ..JobInstall::of_workers(JobName::new("sum").unwrap(), protocol, config, members, [10, 77, 128, 1].into())
        };
        let found = locate(&fabric, job).map_err(|error| error.to_string())?;
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
