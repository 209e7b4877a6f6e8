//! What a plan of faults does to the network when the time of a fault comes.

use tributary_proto::contract::ids::NodeId;

use super::jobs::JobIndex;
use super::simulation::Simulation;
use crate::net::{LinkTrouble, TroubleSpec};
use crate::routing::Table;
use crate::topology::{LinkId, LinkSpec, Rate};

/// One change of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A link's trouble changes; `None` heals the link.
    Trouble(LinkId, Option<TroubleSpec>),
    /// A cable dies, both ways, or comes back.
    Cable(LinkId, bool),
    /// Packets that join a link's queue from now on leave at this rate.
    Rate(LinkId, Rate),
    /// A host or a switch dies. A switch's programs lose what they hold.
    Kill(NodeId),
    /// A switch comes back, its programs as new. (A host's memory is gone: it stays dead.)
    Revive(NodeId),
    /// Paths are computed again over the links that live.
    Reroute,
    /// Jobs may leave, and waiting jobs may begin.
    Turn,
    /// The ranks of a job are told that its own operator has failed.
    Fail(JobIndex),
}

impl Simulation {
    pub(super) fn carry_out(&mut self, action: Action) {
        self.do_it(action);
        self.note_loss(action);
    }

    fn do_it(&mut self, action: Action) {
        match action {
            Action::Trouble(link, spec) => {
                let trouble = spec.map(|spec| LinkTrouble::new(spec, self.settings.seed, link.0));
                self.fabric.set_trouble(link, trouble);
            }
            Action::Cable(link, down) => self.set_cable(link, down),
            Action::Rate(link, rate) => self.set_rate(link, rate),
            Action::Kill(node) => self.kill(node),
            Action::Revive(switch) => self.revive(switch),
            Action::Reroute => {
                let fabric = &self.fabric;
                self.table = Table::new(&self.graph, |link| !fabric.link(link).down);
            }
            Action::Turn => self.turn(),
            Action::Fail(job) => self.fail(job),
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
            let there = self.fabric.link(self.fabric.port(node, port)).to;
            if there.index() < self.hosts.len() && self.fabric.owns(there) {
                self.feed(there);
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
        for seat in host.seats.clone() {
            self.traffic.seats[seat.0 as usize].silence();
            self.close(seat);
        }
    }
}
