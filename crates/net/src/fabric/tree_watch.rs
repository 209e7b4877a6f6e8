//! A job at one switch of a fabric, and whether the cables and switches of its trees are alive.
//!
//! A switch of a static tree holds contributions and sums of its slots that no other machine has. So a tree that has lost a
//! switch or a cable is not repaired under its job, except under protocols that can go on with empty machines
//! ([`super::tree_repair`]). The job ends on every rank, with an error that names the cause, and is planned again when the
//! ranks reconnect.

use tributary_control::fabric::FabricLayout;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::crossbar::Crossbar;
use super::job::FabricJob;
use super::planning;

/// A switch may be busy and therefore silent. If its cables are silent for this time after the neighbours called it
/// dead, it really is dead.
const DEAD_AFTER_SILENCE: Span = Span::from_millis(1_000);
/// The same under protocols that go on with empty machines: a switch that is started again before costs them nothing.
const DEAD_WHERE_REPAIRED: Span = Span::from_millis(2_000);

/// A job that is installed at this switch.
pub struct Installed {
    pub job: FabricJob,
    /// When it was installed.
    pub since: Time,
    edges: Vec<Edge>,
    /// The reason, if the job has failed.
    pub broken: Option<String>,
}

/// A cable of a tree.
struct Edge {
    tree: usize,
    cable: usize,
    child: NodeId,
    parent: NodeId,
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
                    child: switch.node,
                    parent: parent.node,
                    alive: now,
                }));
            }
        }
        Installed { job, since: now, edges, broken: None }
    }

    /// Checks whether the trees are still whole. True if the answer has changed.
    pub fn check(&mut self, now: Time, crossbar: &Crossbar) -> bool {
        let state = crossbar.link_state();
        self.edges.iter_mut().filter(|edge| state.is_up(edge.cable)).for_each(|edge| edge.alive = now);
        if self.broken.is_some() {
            return false;
        }
        let survives = self.job.job.protocol.survives_tree_loss;
        let dead_after = if survives { DEAD_WHERE_REPAIRED } else { DEAD_AFTER_SILENCE };
        let Some(edge) = self.edges.iter().find(|edge| now.since(edge.alive) >= dead_after) else {
            return false;
        };
        let fabric = crossbar.fabric();
        let dead = [edge.parent, edge.child].into_iter().find(|&node| state.is_cut_off(node));
        let what = match dead {
            Some(node) => format!("through {}", fabric.name(node)),
            None => format!("over the cable between {} and {}", fabric.name(edge.child), fabric.name(edge.parent)),
        };
        let advice = planning::advice(fabric, &self.job, &state.dead_cables());
        self.broken = Some(self.job.broken_by(edge.tree, &what, "which is dead", &advice));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, LEAF};
    use super::super::wire::Hello;
    use super::*;
    use crate::udp::UdpPort;
    use tributary_control::fabric::Advert;
    use tributary_proto::contract::ids::{PortId, PortSet};
    use tributary_proto::contract::protocol::Protocol;
    use tributary_proto::protocols;

    const SPINES: [(NodeId, PortId); 2] = [(NodeId(6), PortId(2)), (NodeId(7), PortId(3))];

    fn millis(at: u64) -> Time {
        Time::ZERO + Span::from_millis(at)
    }

    /// The first leaf of two, below two spines, with a job of all four hosts over both.
    fn leaf(controller: &str, survives: bool) -> (Crossbar, UdpPort, Installed) {
        let fabric = testing::leaf_spine(&format!("controller = \"{controller}\""));
        let suits = |protocol: &&Protocol| protocol.switch.is_some() && protocol.survives_tree_loss == survives;
        let protocol = protocols::ALL.iter().copied().find(suits).unwrap();
        let job = testing::job(&fabric, protocol, 2, &[0, 1, 2, 3], 2);
        let udp = UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 16, 1 << 16).unwrap();
        let installed = Installed::new(Time::ZERO, job, &fabric);
        (Crossbar::new(fabric, LEAF, &udp), udp, installed)
    }

    /// A hello from each of these spines, with the report of the other leaf that it receives none from the others.
    fn hello(crossbar: &mut Crossbar, now: Time, spines: &[(NodeId, PortId)]) {
        let mut down = PortSet::EMPTY;
        for (_, port) in SPINES.iter().filter(|spine| !spines.contains(spine)) {
            down.insert(*port);
        }
        for &(node, port) in spines {
            let other_leaf = Advert { switch: 1, seq: 1 + now.0, down };
            crossbar.on_hello(now, port, &Hello { node, ready: true, adverts: vec![other_leaf] });
        }
        crossbar.update_links(now, false);
    }

    #[test]
    fn a_tree_whose_spine_is_silent_for_good_is_broken_and_the_way_around_is_named() {
        for (survives, dead_after_ms) in [(false, 1_000), (true, 2_000)] {
            let (mut crossbar, _udp, mut job) = leaf("leaf0", survives);
            hello(&mut crossbar, millis(0), &SPINES);
            assert!(!job.check(millis(0), &crossbar));
            // From now on only the first spine sends hellos, and the other leaf has just reported that the second one is
            // silent.
            for at in (50..=2_400).step_by(50) {
                hello(&mut crossbar, millis(at), &SPINES[..1]);
                let broken = job.check(millis(at), &crossbar);
                assert_eq!(broken, at == dead_after_ms, "at {at} ms, and only once");
            }
            let error = job.broken.unwrap();
            let wanted = "of job \"sum\" ran through spine1, which is dead; connect again to run over spine0";
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_switch_that_was_only_busy_breaks_nothing() {
        let (mut crossbar, _udp, mut job) = leaf("leaf0", false);
        hello(&mut crossbar, millis(0), &SPINES);
        job.check(millis(0), &crossbar);
        for at in (50..=1_000).step_by(50) {
            hello(&mut crossbar, millis(at), &[]);
            assert!(!job.check(millis(at), &crossbar));
        }
        hello(&mut crossbar, millis(1_100), &SPINES);
        for at in (1_100..=3_000).step_by(50) {
            hello(&mut crossbar, millis(at), &SPINES);
            assert!(!job.check(millis(at), &crossbar));
        }
        assert_eq!(job.broken, None);
    }

    #[test]
    fn a_controller_that_died_with_the_tree_must_be_started_first() {
        let (mut crossbar, _udp, mut job) = leaf("spine1", false);
        hello(&mut crossbar, millis(0), &SPINES);
        job.check(millis(0), &crossbar);
        hello(&mut crossbar, millis(1_200), &SPINES[..1]);
        job.check(millis(1_200), &crossbar);
        let error = job.broken.unwrap();
        assert!(error.ends_with("connect again when spine1, where jobs are formed, is started again"), "{error}");
    }
}
