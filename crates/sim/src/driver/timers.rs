//! The timers of machines at hosts and switches, and of transports.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::seat::HostSeatId;
use super::simulation::Simulation;

impl Simulation {
    pub(super) fn next_timer(&mut self) -> Option<Time> {
        match (self.seat_timers.earliest(), self.node_timers.earliest()) {
            (Some(seat), Some(switch)) => Some(seat.min(switch)),
            (seat, switch) => seat.or(switch),
        }
    }

    /// Ends the drain of a host's machines. Machines that the NIC keeps waiting have not finished with their last
    /// input. For the others, events are taken (a machine may find out while it sends) and timers are set.
    pub(super) fn rearm(&mut self, host: NodeId) {
        if let Some(endpoint) = &mut self.hosts[host.index()].endpoint {
            self.node_timers.set(host.0, endpoint.poll_timeout());
        }
        for index in 0..self.hosts[host.index()].seats.len() {
            let id = self.hosts[host.index()].seats[index];
            let seat = &mut self.traffic.seats[id.0 as usize];
            if seat.alive && seat.drain.end() {
                self.hear(id);
                let machine = &self.traffic.seats[id.0 as usize].machine;
                self.seat_timers.set(id.0, machine.poll_timeout_before(self.seat_timers.armed(id.0)));
            }
        }
    }

    /// Runs the first timer that is due.
    pub(super) fn handle_timer(&mut self, now: Time) {
        if let Some(seat) = self.seat_timers.pop_due(now) {
            self.traffic.seats[seat as usize].handle_timeout(now);
            self.drain(HostSeatId(seat));
        } else if let Some(node) = self.node_timers.pop_due(now) {
            match node.checked_sub(self.hosts.len() as u32) {
                Some(switch) => self.handle_switch_timeout(switch),
                None => {
                    if let Some(endpoint) = &mut self.hosts[node as usize].endpoint {
                        endpoint.handle_timeout(now);
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
            if self.fabric.owns(switch.exits.node) {
                self.node_timers.set(switch.exits.node.0, switch.next_timeout_of_all());
            }
        }
    }

    fn handle_switch_timeout(&mut self, index: u32) {
        let switch = &mut self.switches[index as usize];
        switch.handle_timeout(&mut self.fabric, &self.table, &mut self.traffic.scratch);
        let node = switch.exits.node.0;
        self.node_timers.set(node, switch.next_timeout_of_all());
        self.look_for_failures(index);
    }
}
