//! The machines that jobs of a protocol share at one switch of a fabric, and what such a machine learns of each job.

use std::collections::BTreeMap;

use tributary_control::fabric::FabricLayout;
use tributary_proto::contract::config::{FabricPlan, JobConfig, SharedJob, SharedSwitchConfig};
use tributary_proto::contract::ids::{JobId, NodeId, PortId};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::values::Values;

use super::crossbar::Crossbar;
use super::tree_watch::Installed;
use crate::shard::SharedMachines;

/// Installs the machine at the switch `node`, unless it is there.
pub fn install(protocol: &Protocol, fabric: &FabricLayout, node: NodeId, pipeline: &mut Pipeline) {
    let Some(shared) = protocol.shared.as_ref().filter(|_| !pipeline.has_shared(protocol.code)) else { return };
    let (elements_per_packet, options) = (fabric.elements_per_packet, fabric.switch_options.of(shared));
    let config = SharedSwitchConfig { node, elements_per_packet, options };
    pipeline.share(protocol.code, (shared.machine)(Values::Elements, &config));
}

/// Removes the machines that no job uses, except those of the protocols `stay`.
pub fn remove_idle(
    jobs: &BTreeMap<JobId, Installed>,
    stay: &[&Protocol],
    totals: &mut SharedMachines,
    pipeline: &mut Pipeline,
) {
    let is_used = |code: &u8| jobs.values().any(|job| job.job.job.protocol.code == *code);
    let may_go = |code: &u8| !stay.iter().any(|protocol| protocol.code == *code) && !is_used(code);
    let idle: Vec<u8> = pipeline.all_shared().map(|(code, ..)| code).filter(may_go).collect();
    for code in idle {
        totals.remove(pipeline, code);
    }
}

/// A job as the shared machine learns of it: `hosts` are those of its members, then of its servers. It has no planned
/// trees.
pub fn job_plan(crossbar: &Crossbar, protocol: &Protocol, job: &JobConfig, hosts: &[NodeId]) -> SharedJob {
    let fabric = crossbar.fabric();
    let ports: Vec<Option<PortId>> = hosts.iter().map(|&host| crossbar.port_to(host)).collect();
    let children = ports.iter().take(job.world.into()).flatten().count() as u16;
    let switches = hosts.iter().map(|&host| fabric.leaf_of(host)).collect();
    SharedJob {
        job: job.clone(),
        fabric: FabricPlan { hosts: hosts.into(), switches, roots: [].into() },
        ports,
        trees: Vec::new(),
        share_bytes: protocol.share_bytes(job, children),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tributary_control::fabric::FabricFile;
    use tributary_proto::contract::ids::JobKey;
    use tributary_proto::contract::switch::SharedReport;
    use tributary_proto::protocols;

    use super::*;
    use crate::udp::UdpPort;

    const LEAF: NodeId = NodeId(4);

    /// The first leaf of two, below two spines, with two hosts behind each.
    fn leaf() -> Crossbar {
        let text = "secret = \"0123456789abcdef\"\nnetwork = \"127.77.0.0\"\n[leaf_spine]\nleaves = 2\nspines = 2\n\
                    hosts_per_leaf = 2\n";
        let udp = UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 16, 1 << 16).unwrap();
        Crossbar::new(Arc::new(FabricFile::parse(text).unwrap()), LEAF, &udp)
    }

    fn sharing() -> impl Iterator<Item = &'static Protocol> {
        protocols::ALL.iter().copied().filter(|protocol| protocol.shared.is_some())
    }

    #[test]
    fn a_shared_machine_learns_where_members_are_and_by_which_ports_its_own_are_reached() {
        let crossbar = leaf();
        for protocol in sharing() {
            let job = JobConfig {
                job: JobId(1),
                key: JobKey(7),
                protocol: protocol.code,
                world: 3,
                slots: 64,
                elements_per_packet: 352,
                trees: 1,
                levels: false,
                options: protocol.options.defaults(),
            };
            let job_of_switch = job_plan(&crossbar, protocol, &job, &[2, 1, 0].map(NodeId));
            assert_eq!(*job_of_switch.fabric.hosts, [2, 1, 0].map(NodeId));
            assert_eq!(*job_of_switch.fabric.switches, [5, 4, 4].map(NodeId));
            assert_eq!(job_of_switch.ports, [None, Some(PortId(1)), Some(PortId(0))]);
            assert_eq!((job_of_switch.job.world, job_of_switch.trees.len()), (3, 0));
            assert_eq!(job_of_switch.share_bytes, protocol.share_bytes(&job, 2));
            // A server comes after the ranks.
            let job = JobConfig { world: 2, ..job };
            let job_of_switch = job_plan(&crossbar, protocol, &job, &[2, 0, 1].map(NodeId));
            assert_eq!(job_of_switch.ports, [None, Some(PortId(0)), Some(PortId(1))]);
            assert_eq!(job_of_switch.share_bytes, protocol.share_bytes(&job, 1), "{protocol}: it is not a member");
        }
    }

    #[test]
    fn an_idle_machine_is_removed_unless_the_controller_keeps_it() {
        let (crossbar, mut pipeline) = (leaf(), Pipeline::on_a_thread());
        let all: Vec<&Protocol> = sharing().collect();
        all.iter().for_each(|protocol| install(protocol, crossbar.fabric(), LEAF, &mut pipeline));
        let mut totals = SharedMachines::default();
        let before = totals.report(&pipeline);
        remove_idle(&BTreeMap::new(), &all[1..], &mut totals, &mut pipeline);
        assert!(pipeline.all_shared().map(|(code, ..)| code).eq(all[1..].iter().map(|protocol| protocol.code)));
        // Its counters are reported as before.
        let names = |report: &[(u8, SharedReport, usize)]| {
            report.iter().map(|(code, own, _)| (*code, own.metrics.iter().map(|own| own.name).collect())).collect()
        };
        let (before, after): (Vec<(u8, Vec<&str>)>, _) = (names(&before), names(&totals.report(&pipeline)));
        assert_eq!(before, after);
    }
}
