//! Flows under DCTCP: their beginnings, their packets, and how many are open.

use tributary_proto::contract::ids::NodeId;

use super::simulation::Simulation;
use crate::net::Packet;
use crate::transport::Endpoint;
use crate::workload::PoissonSource;

impl Simulation {
    /// A flow under DCTCP of so many bytes of data arises at its sender now; returns its number there. `None` if it
    /// needs more packets than packets have numbers.
    pub fn start_flow(&mut self, from: NodeId, to: NodeId, bytes: u64) -> Option<u32> {
        let now = self.fabric.now;
        let flow = self.endpoint_mut(from).start(now, to, bytes);
        self.count(from);
        self.hosts[from.index()].wake(&mut self.fabric);
        flow
    }

    /// Lets a host begin flows under DCTCP.
    pub fn add_flow_source(&mut self, host: NodeId, source: PoissonSource) {
        self.endpoint_mut(host).add_source(source);
        self.count(host);
        self.hosts[host.index()].wake(&mut self.fabric);
    }

    /// A host's flows under DCTCP, if it ever had any.
    pub fn endpoint(&self, host: NodeId) -> Option<&Endpoint> {
        self.hosts[host.index()].endpoint.as_deref()
    }

    fn endpoint_mut(&mut self, host: NodeId) -> &mut Endpoint {
        let settings = self.settings.transport;
        self.hosts[host.index()].endpoint.get_or_insert_with(|| Box::new(Endpoint::new(settings)))
    }

    pub(super) fn receive_segment(&mut self, host: NodeId, packet: Packet) {
        if !self.hosts[host.index()].is_silent {
            let (now, ecn) = (self.fabric.now, packet.flags.ecn());
            let settings = self.settings.transport;
            let endpoint = &mut self.hosts[host.index()].endpoint;
            let endpoint = endpoint.get_or_insert_with(|| Box::new(Endpoint::new(settings)));
            endpoint.handle_packet(now, packet.src, self.fabric.payloads.get(packet.payload).0, ecn);
            self.count(host);
            self.feed(host);
        }
        self.fabric.payloads.release(packet.payload);
    }

    /// Counts the flows that began and ended at a host's endpoint.
    pub(super) fn count(&mut self, host: NodeId) {
        if let Some(endpoint) = &mut self.hosts[host.index()].endpoint {
            let balance = endpoint.take_balance();
            self.open += balance.opened;
            self.open -= balance.closed;
        }
    }
}
