//! A job as the machine that its protocol's jobs share learns of it at one switch of a fabric.

use tributary_proto::contract::config::{FabricPlan, SharedJob};
use tributary_proto::contract::ids::{NodeId, PortId};

use super::crossbar::Crossbar;
use super::job::FabricJob;

/// The job, with the hosts of its members and then of its servers, and without planned trees.
pub fn at_switch(crossbar: &Crossbar, job: &FabricJob) -> SharedJob {
    let (fabric, config) = (crossbar.fabric(), &job.job.config);
    let hosts: Vec<NodeId> = job.endpoints().collect();
    let ports: Vec<Option<PortId>> = hosts.iter().map(|&host| crossbar.port_to(host)).collect();
    let children = ports.iter().take(config.world_size.into()).flatten().count() as u16;
    let switches = hosts.iter().map(|&host| fabric.leaf_of(host)).collect();
    SharedJob {
        job: config.clone(),
        fabric: FabricPlan { hosts: hosts.into(), switches, roots: [].into() },
        ports,
        trees: Vec::new(),
        share_bytes: job.job.protocol.share_bytes(config, children),
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::protocol::Protocol;
    use tributary_proto::protocols;

    use super::super::testing::{self, LEAF};
    use super::*;
    use crate::udp::UdpPort;

    #[test]
    fn a_shared_machine_learns_where_members_are_and_by_which_ports_its_own_are_reached() {
        let fabric = testing::leaf_spine("");
        let udp = UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 16, 1 << 16).unwrap();
        let crossbar = Crossbar::new(fabric.clone(), LEAF, &udp);
        let sharing = protocols::ALL.iter().copied().filter(|protocol: &&Protocol| protocol.shared.is_some());
        for protocol in sharing {
            let mut job = testing::job(&fabric, protocol, 1, &[2, 1, 0], 0);
            let shared = at_switch(&crossbar, &job);
            assert_eq!(*shared.fabric.hosts, [2, 1, 0].map(NodeId));
            assert_eq!(*shared.fabric.switches, [5, 4, 4].map(NodeId));
            assert_eq!(shared.ports, [None, Some(PortId(1)), Some(PortId(0))]);
            assert_eq!((shared.job.world_size, shared.trees.len()), (3, 0));
            assert_eq!(shared.share_bytes, protocol.share_bytes(&job.job.config, 2));
            // A server comes after the ranks.
            job.job.config.world_size = 2;
            (job.hosts, job.server_hosts) = (vec![NodeId(2), NodeId(0)], vec![NodeId(1)]);
            let shared = at_switch(&crossbar, &job);
            assert_eq!(shared.ports, [None, Some(PortId(0)), Some(PortId(1))]);
            assert_eq!(shared.share_bytes, protocol.share_bytes(&job.job.config, 1), "{protocol}: it is not a member");
        }
    }
}
