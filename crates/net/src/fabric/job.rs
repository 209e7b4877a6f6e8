//! A job at a switch of a fabric, and whether the cables and switches of the job's trees are alive.
//!
//! A switch of a static tree holds contributions and sums of its slots that no other machine has. So a tree that has
//! lost a switch or a cable is never mended under its job. The job ends on every rank, with an error that names the
//! cause, and is planned anew when the ranks connect again.

use std::net::SocketAddr;

use tributary_control::JobName;
use tributary_control::fabric::FabricLayout;
use tributary_control::trees::Tree;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::crossbar::Crossbar;
use crate::progress::OfRanks;
use crate::shard::{JobInstall, Rates};

/// A switch may be busy and therefore silent. If its cables are silent for this time after the neighbours called it
/// dead, it really is dead.
const SILENT: Span = Span::from_millis(1_000);

/// A job as the seat has planned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricJob {
    /// The job's name.
    pub name: JobName,
    /// Protocol, sizes, key, and the UDP address of each member. Each tree owns the slots of a shard.
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

impl FabricJob {
    /// The hosts of all members, and then of all servers.
    pub fn seats(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.hosts.iter().chain(&self.server_hosts).copied()
    }

    /// Each member's host and address, and then each server's.
    pub fn placed(&self) -> Vec<(NodeId, SocketAddr)> {
        let JobInstall { members, servers, .. } = &self.job;
        self.seats().zip(members.iter().copied().chain(servers.iter().map(|server| server.addr))).collect()
    }

    /// The switches without which the job cannot run: the switches of its trees, or those with members or servers.
    pub fn needs(&self, fabric: &FabricLayout) -> Vec<NodeId> {
        let leaves = self.seats().map(|host| fabric.leaf_of(host));
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

    /// What every rank is told: the job's first tree that is broken, the switch or cable that it used (`what`), the
    /// reason (`why`, as in "which is dead"), and the advice.
    pub fn broken_by(&self, tree: usize, what: &str, why: &str, advice: &str) -> String {
        format!("tree {tree} of job \"{}\" ran {what}, {why}; {advice}", self.name)
    }
}

/// A job that is installed at this switch.
pub struct Installed {
    pub job: FabricJob,
    pub rates: Rates,
    /// The progress of the ranks at this switch.
    pub progress: OfRanks,
    edges: Vec<Edge>,
    /// The reason, if the job can never go on.
    pub broken: Option<String>,
}

/// A cable of a tree.
struct Edge {
    tree: usize,
    cable: usize,
    below: NodeId,
    above: NodeId,
    /// When the cable was last known to be alive. At first this is the time of the installation.
    alive: Time,
}

impl Installed {
    pub fn new(now: Time, job: FabricJob, fabric: &FabricLayout) -> Installed {
        let mut edges = Vec::new();
        for (tree, plan) in job.trees.iter().enumerate() {
            for switch in &plan.switches {
                let Some(parent) = switch.parent else { continue };
                let ports = fabric.ports.get(switch.node.index());
                let cable = ports.and_then(|ports| ports.get(parent.port.index())).map(|port| port.cable);
                edges.extend(cable.map(|cable| Edge {
                    tree,
                    cable,
                    below: switch.node,
                    above: parent.node,
                    alive: now,
                }));
            }
        }
        let progress = OfRanks::new(job.job.config.world);
        Installed { job, rates: Rates::default(), progress, edges, broken: None }
    }

    /// Checks whether the trees are still whole. True if the answer has changed.
    pub fn look(&mut self, now: Time, crossbar: &Crossbar) -> bool {
        let state = crossbar.link_state();
        self.edges.iter_mut().filter(|edge| state.is_up(edge.cable)).for_each(|edge| edge.alive = now);
        if self.broken.is_some() {
            return false;
        }
        let Some(edge) = self.edges.iter().find(|edge| now.since(edge.alive) >= SILENT) else { return false };
        let fabric = crossbar.fabric();
        let dead = [edge.above, edge.below].into_iter().find(|&node| state.is_cut_off(node));
        let what = match dead {
            Some(node) => format!("through {}", fabric.name(node)),
            None => format!("over the cable between {} and {}", fabric.name(edge.below), fabric.name(edge.above)),
        };
        let advice = super::planning::advice(fabric, &self.job, &state.dead_cables());
        self.broken = Some(self.job.broken_by(edge.tree, &what, "which is dead", &advice));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::wire::Hello;
    use super::*;
    use crate::udp::UdpPort;
    use tributary_control::fabric::{Advert, FabricFile};
    use tributary_control::trees::TreeJob;
    use tributary_proto::contract::config::JobConfig;
    use tributary_proto::contract::ids::{JobId, JobKey, PortId, PortSet};
    use tributary_proto::protocols;

    const LEAF: NodeId = NodeId(4);
    const SPINES: [(NodeId, PortId); 2] = [(NodeId(6), PortId(2)), (NodeId(7), PortId(3))];

    fn millis(at: u64) -> Time {
        Time::ZERO + Span::from_millis(at)
    }

    /// The first leaf of two, below two spines, with a job of all four hosts over both.
    fn leaf(controller: &str) -> (Crossbar, UdpPort, Installed) {
        let text = format!(
            "secret = \"0123456789abcdef\"\ncontroller = \"{controller}\"\nnetwork = \"127.77.0.0\"\n[leaf_spine]\nleaves = 2\n\
             spines = 2\nhosts_per_leaf = 2\n"
        );
        let fabric = Arc::new(FabricFile::parse(&text).unwrap());
        let hosts = [0, 1, 2, 3].map(NodeId);
        let request = TreeJob { id: JobId(2), hosts: &hosts, trees: Some(2) };
        let trees = fabric.planner(&[]).plan(request, &|_| 0).unwrap();
        let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.switch.is_some()).unwrap();
        let config = JobConfig {
            job: JobId(2),
            key: JobKey(1),
            protocol: protocol.code,
            world: 4,
            slots: 8,
            elements_per_packet: 64,
            trees: 2,
            levels: true,
            options: protocol.options.defaults(),
        };
        let members = (1..5).map(|host| ([127, 77, 0, host], 4_000).into()).collect();
        let job = JobInstall::of_workers(protocol, config, members, [127, 77, 128, 1].into());
        let (hosts, server_hosts, around) = (hosts.to_vec(), Vec::new(), Vec::new());
        let job = FabricJob { name: JobName::new("sum").unwrap(), job, hosts, server_hosts, trees, around };
        let udp = UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 16, 1 << 16).unwrap();
        let installed = Installed::new(Time::ZERO, job, &fabric);
        (Crossbar::new(fabric, LEAF, &udp), udp, installed)
    }

    /// A sign of life from each of these spines, with the report of the other leaf that it hears no other spine.
    fn hear(crossbar: &mut Crossbar, now: Time, spines: &[(NodeId, PortId)]) {
        let mut down = PortSet::EMPTY;
        for (_, port) in SPINES.iter().filter(|spine| !spines.contains(spine)) {
            down.insert(*port);
        }
        for &(node, port) in spines {
            let other_leaf = Advert { switch: 1, seq: 1 + now.0, down };
            crossbar.hear(now, port, &Hello { node, ready: true, adverts: vec![other_leaf] });
        }
        crossbar.look(now, false);
    }

    #[test]
    fn a_tree_whose_spine_is_silent_for_good_is_broken_and_the_way_around_is_named() {
        let (mut crossbar, _udp, mut job) = leaf("leaf0");
        hear(&mut crossbar, millis(0), &SPINES);
        assert!(!job.look(millis(0), &crossbar));
        // From now on only the first spine sends signs of life, and the other leaf has just reported that it does not
        // hear the second one.
        for at in (50..=1_400).step_by(50) {
            hear(&mut crossbar, millis(at), &SPINES[..1]);
            let broken = job.look(millis(at), &crossbar);
            assert_eq!(broken, at == 1_000, "at {at} ms: news, and only once");
        }
        let told = job.broken.unwrap();
        assert!(
            told.contains("of job \"sum\" ran through spine1, which is dead; connect again to run over spine0"),
            "{told}"
        );
    }

    #[test]
    fn a_switch_that_was_only_busy_breaks_nothing() {
        let (mut crossbar, _udp, mut job) = leaf("leaf0");
        hear(&mut crossbar, millis(0), &SPINES);
        job.look(millis(0), &crossbar);
        for at in (50..=1_000).step_by(50) {
            hear(&mut crossbar, millis(at), &[]);
            assert!(!job.look(millis(at), &crossbar));
        }
        hear(&mut crossbar, millis(1_100), &SPINES);
        for at in (1_100..=3_000).step_by(50) {
            hear(&mut crossbar, millis(at), &SPINES);
            assert!(!job.look(millis(at), &crossbar));
        }
        assert_eq!(job.broken, None);
    }

    #[test]
    fn a_seat_that_died_with_the_tree_must_be_started_first() {
        let (mut crossbar, _udp, mut job) = leaf("spine1");
        hear(&mut crossbar, millis(0), &SPINES);
        job.look(millis(0), &crossbar);
        hear(&mut crossbar, millis(1_200), &SPINES[..1]);
        job.look(millis(1_200), &crossbar);
        let told = job.broken.unwrap();
        assert!(told.ends_with("connect again when spine1, where jobs are formed, is started again"), "{told}");
    }
}
