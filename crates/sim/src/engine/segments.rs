//! Flows under DCTCP: their beginnings, their packets, and how many are open.

use tributary_proto::contract::ids::NodeId;

use super::simulation::Simulation;
use crate::net::Packet;
use crate::transport::TransportHost;
use crate::workload::PoissonSource;

impl Simulation {
    /// Starts a flow of `bytes` bytes of data under DCTCP; returns its number at the sender. `None` if it has more packets
    /// than there are packet numbers.
    pub fn start_flow(&mut self, from: NodeId, to: NodeId, bytes: u64) -> Option<u32> {
        let now = self.fabric.now;
        let flow = self.transport_mut(from).start(now, to, bytes);
        self.count(from);
        self.hosts[from.index()].wake(&mut self.fabric);
        flow
    }

    /// Gives a host a source of flows under DCTCP.
    pub fn add_flow_source(&mut self, host: NodeId, source: PoissonSource) {
        self.transport_mut(host).add_source(source);
        self.count(host);
        self.hosts[host.index()].wake(&mut self.fabric);
    }

    /// A host's flows under DCTCP, if it ever had any.
    pub fn transport(&self, host: NodeId) -> Option<&TransportHost> {
        self.hosts[host.index()].transport.as_deref()
    }

    fn transport_mut(&mut self, host: NodeId) -> &mut TransportHost {
        let settings = self.settings.transport;
        self.hosts[host.index()].transport.get_or_insert_with(|| Box::new(TransportHost::new(settings)))
    }

    pub(super) fn receive_segment(&mut self, host: NodeId, packet: Packet) {
        if !self.hosts[host.index()].is_silent {
            let (now, ecn) = (self.fabric.now, packet.flags.ecn());
            let settings = self.settings.transport;
            let transport = &mut self.hosts[host.index()].transport;
            let transport = transport.get_or_insert_with(|| Box::new(TransportHost::new(settings)));
            transport.handle_packet(now, packet.src, self.fabric.payloads.get(packet.payload).0, ecn);
            self.count(host);
            self.feed(host);
        }
        self.fabric.payloads.release(packet.payload);
    }

    /// Counts the flows that began and ended at a host.
    pub(super) fn count(&mut self, host: NodeId) {
        if let Some(transport) = &mut self.hosts[host.index()].transport {
            let balance = transport.take_balance();
            self.open += balance.opened;
            self.open -= balance.closed;
        }
    }
}
