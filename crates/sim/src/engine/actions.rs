//! Changes of the network at planned times: faults, and jobs that start or leave.

use tributary_proto::contract::ids::NodeId;

use super::jobs::JobIndex;
use super::simulation::Simulation;
use crate::net::{ImpairmentSpec, LinkImpairment};
use crate::routing::Table;
use crate::topology::{LinkId, LinkSpec, Rate};

/// One change of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A link's impairment changes; `None` heals the link.
    Impair(LinkId, Option<ImpairmentSpec>),
    /// A cable dies, both ways, or comes back.
    Cable(LinkId, bool),
    /// Packets that join a link's queue from now on leave at this rate.
    Rate(LinkId, Rate),
    /// A host or a switch dies. A switch's programs lose what they hold.
    Kill(NodeId),
    /// A switch comes back, its programs as new. (A host's memory is gone: it stays dead.)
    Revive(NodeId),
    /// Paths are computed again over the links that are up.
    Reroute,
    /// Jobs that have ended leave, and waiting jobs start.
    ScheduleJobs,
    /// The ranks of a job learn that its custom operator has failed.
    FailJob(JobIndex),
}

impl Simulation {
    pub(super) fn carry_out(&mut self, action: Action) {
        self.apply(action);
        self.note_loss(action);
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Impair(link, spec) => {
                let impairment = spec.map(|spec| LinkImpairment::new(spec, self.settings.seed, link.0));
                self.fabric.set_impairment(link, impairment);
            }
            Action::Cable(link, down) => self.set_cable(link, down),
            Action::Rate(link, rate) => self.set_rate(link, rate),
            Action::Kill(node) => self.kill(node),
            Action::Revive(switch) => self.revive(switch),
            Action::Reroute => {
                let fabric = &self.fabric;
                self.table = Table::new(&self.graph, |link| !fabric.link(link).down);
            }
            Action::ScheduleJobs => self.schedule_jobs(),
            Action::FailJob(job) => self.fail_job(job),
        }
    }

    fn set_cable(&mut self, link: LinkId, down: bool) {
        self.fabric.set_cable_down(link, down);
        for link in [link, link.reverse()] {
            // A NIC that waited for its cable sends again.
            let (from, _) = self.graph.ends(link);
            if from.index() < self.hosts.len() && self.fabric.owns(from) {
                self.feed(from);
            }
        }
    }

    fn set_rate(&mut self, link: LinkId, rate: Rate) {
        let spec = LinkSpec { rate, ..self.graph.queue_spec(link) };
        self.fabric.set_rate(link, &spec);
        if let Some(host) = self.hosts.get_mut(self.graph.ends(link).0.index()) {
            host.set_rate(&self.fabric, self.settings.nic_bytes);
        }
    }

    fn revive(&mut self, node: NodeId) {
        if self.graph.switch_index(node).is_none() {
            return;
        }
        self.fabric.set_node_down(node, false);
        for port in 0..self.fabric.ports(node).len() as u16 {
            let peer = self.fabric.link(self.fabric.port(node, port)).to;
            if peer.index() < self.hosts.len() && self.fabric.owns(peer) {
                self.feed(peer);
            }
        }
    }

    fn kill(&mut self, node: NodeId) {
        self.fabric.set_node_down(node, true);
        if !self.fabric.owns(node) {
            return;
        }
        if let Some(switch) = self.graph.switch_index(node) {
            return self.reinstall(switch);
        }
        let host = &mut self.hosts[node.index()];
        self.open -= host.silence();
        for endpoint in host.endpoints.clone() {
            self.traffic.endpoints[endpoint.0 as usize].silence();
            self.finish_endpoint(endpoint);
        }
    }
}
