//! The timers of machines at hosts and switches, and of transports.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::endpoint::EndpointId;
use super::simulation::Simulation;

impl Simulation {
    pub(super) fn next_timer(&mut self) -> Option<Time> {
        match (self.endpoint_timers.earliest(), self.node_timers.earliest()) {
            (Some(endpoint), Some(switch)) => Some(endpoint.min(switch)),
            (endpoint, switch) => endpoint.or(switch),
        }
    }

    /// Ends the drain of a host's machines, except those that the NIC keeps waiting: handles their events (sending may
    /// have caused some) and sets their timers.
    pub(super) fn rearm(&mut self, host: NodeId) {
        if let Some(transport) = &mut self.hosts[host.index()].transport {
            self.node_timers.set(host.0, transport.poll_timeout());
        }
        for index in 0..self.hosts[host.index()].endpoints.len() {
            let id = self.hosts[host.index()].endpoints[index];
            let endpoint = &mut self.traffic.endpoints[id.0 as usize];
            if endpoint.alive && endpoint.drain.end() {
                self.poll_events(id);
                let machine = &self.traffic.endpoints[id.0 as usize].machine;
                self.endpoint_timers.set(id.0, machine.poll_timeout_before(self.endpoint_timers.armed(id.0)));
            }
        }
    }

    /// Runs the first timer that is due.
    pub(super) fn handle_timer(&mut self, now: Time) {
        if let Some(endpoint) = self.endpoint_timers.pop_due(now) {
            self.traffic.endpoints[endpoint as usize].handle_timeout(now);
            self.drain(EndpointId(endpoint));
        } else if let Some(node) = self.node_timers.pop_due(now) {
            match node.checked_sub(self.hosts.len() as u32) {
                Some(switch) => self.handle_switch_timeout(switch),
                None => {
                    if let Some(transport) = &mut self.hosts[node as usize].transport {
                        transport.handle_timeout(now);
                        self.count(NodeId(node));
                        self.feed(NodeId(node));
                    }
                }
            }
        }
    }

    /// Sets the timers of all switches.
    pub(super) fn set_switch_timers(&mut self) {
        for switch in &self.switches {
            if self.fabric.owns(switch.forwarding.node) {
                self.node_timers.set(switch.forwarding.node.0, switch.next_timeout_of_all());
            }
        }
    }

    fn handle_switch_timeout(&mut self, index: u32) {
        let switch = &mut self.switches[index as usize];
        switch.handle_timeout(&mut self.fabric, &self.table, &mut self.traffic.scratch);
        let node = switch.forwarding.node.0;
        self.node_timers.set(node, switch.next_timeout_of_all());
        self.check_operators(index);
    }
}
