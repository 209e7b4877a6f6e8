//! The endpoints of jobs: the collectives that they submit, the packets that they receive, their events and timers; what
//! ranks of one host bring to its endpoint; and what happens to a job whose custom operator fails in a switch.
//!
//! All partitions of a run on several threads must fail a job at the same instant. So it happens at the end of the window
//! in which the operator failed; ranks get the first failure in a window.

use tributary_proto::contract::drive;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::time::Time;

use crate::engine::endpoint::Endpoint;
use crate::engine::faults::{Action, Failure, note_first};
use crate::engine::host_memory::{HostMemory, HostRanks};
use crate::engine::records::{EndpointId, JobError, JobErrorKind, JobIndex};
use crate::engine::simulation::Simulation;
use crate::engine::traffic::Traffic;
use crate::events::{EventId, EventKind};
use crate::net::Packet;
use crate::topology::{Rate, window_end};

impl Simulation {
    /// A rank submits its next collective.
    pub(crate) fn submit(&mut self, id: EndpointId) {
        let now = self.fabric.now;
        let Traffic { endpoints, jobs, .. } = &mut self.traffic;
        let endpoint = &mut endpoints[id.0 as usize];
        let job = jobs.get_mut(endpoint.job);
        if !endpoint.alive || endpoint.submitted == job.plan.iterations {
            return;
        }
        // Later collectives are submitted late from the beginning.
        let first = job.plan.start + job.lateness(endpoint.rank);
        if now < first {
            return self.fabric.queue.push(first, EventId::new(EventKind::Submit, id.0));
        }
        if !self.has_come_to_leader(id) {
            return;
        }
        let Traffic { endpoints, jobs, .. } = &mut self.traffic;
        let endpoint = &mut endpoints[id.0 as usize];
        let job = jobs.get_mut(endpoint.job);
        let deadline = job.plan.timeout.map(|timeout| now + timeout);
        let tensor = job.tensor(endpoint.rank, endpoint.submitted, now);
        endpoint.submitted += 1;
        match endpoint.machine.submit(now, Collective { tensor, deadline }) {
            Ok(_) => {
                endpoint.drain.begin();
                self.bring_next(id);
                self.drain(id);
            }
            // A failed job refuses collectives; its error is recorded already.
            Err(_) => self.finish_endpoint(id),
        }
    }

    pub(crate) fn receive_of_job(&mut self, host: NodeId, job: JobIndex, packet: Packet) {
        self.hosts[host.index()].charge(self.fabric.now, packet.bytes);
        let Traffic { endpoints, jobs, .. } = &mut self.traffic;
        let endpoint = self.hosts[host.index()]
            .endpoints
            .iter()
            .copied()
            .find(|endpoint| endpoints[endpoint.0 as usize].job == job);
        if let Some(endpoint) = endpoint {
            let member = &mut endpoints[endpoint.0 as usize];
            if member.alive {
                member.receive(&self.fabric, jobs, &packet);
                self.drain(endpoint);
            }
        }
        self.fabric.payloads.release(packet.payload);
    }

    /// The drain rule of `contract::host`: transmit while the NIC takes packets, then events, then the timeout.
    pub(crate) fn drain(&mut self, endpoint: EndpointId) {
        let host = self.traffic.endpoints[endpoint.0 as usize].host;
        self.hosts[host.index()].fill_nic(&mut self.fabric, &self.table, &mut self.traffic);
        self.poll_events(endpoint);
        self.rearm(host);
    }

    /// Handles the events of a machine.
    pub(crate) fn poll_events(&mut self, id: EndpointId) {
        let Traffic { endpoints, jobs, .. } = &mut self.traffic;
        let Endpoint { host, machine, job, rank, submitted, completed, .. } = &mut endpoints[id.0 as usize];
        let memory = &mut self.hosts[host.index()].memory;
        let mut ends = false;
        // The collectives of a training step that are complete: what follows is the step's to decide.
        let mut operations = Vec::new();
        drive::host::drain_events(&mut **machine, |event| {
            let job = jobs.get_mut(*job);
            let done = match &event {
                HostEvent::Done { op, .. } => Some(*op),
                HostEvent::Failed { .. } => None,
            };
            let now = self.fabric.now;
            let at = match (done, memory.as_mut().filter(|_| job.host_ranks.is_several())) {
                (Some(op), Some(memory)) => {
                    let bytes = job.host_ranks.bytes_down(&job.plan.spec_of(op.0 as u32), *rank);
                    memory.carry_down(now, bytes)
                }
                _ => now,
            };
            job.handle_event(*rank, event, now, at);
            *completed += u32::from(done.is_some());
            if done.is_some() && !completed.is_multiple_of(job.host_ranks.fragments) {
                // The other fragments of the collective are on their way.
            } else if let Some(op) = done.filter(|_| !(job.plan.operations.is_empty() || job.host_ranks.is_several())) {
                operations.push(op);
                ends |= *completed == job.plan.iterations;
            } else if done.is_some() && *submitted < job.plan.iterations {
                let at = at + job.plan.compute + job.lateness(*rank);
                self.fabric.queue.push(at, EventId::new(EventKind::Submit, id.0));
            } else {
                ends = true;
            }
        });
        operations.into_iter().for_each(|op| self.note_operation(id, op));
        if ends {
            self.finish_endpoint(id);
        }
    }

    pub(crate) fn next_timer(&mut self) -> Option<Time> {
        match (self.endpoint_timers.earliest(), self.node_timers.earliest()) {
            (Some(endpoint), Some(switch)) => Some(endpoint.min(switch)),
            (endpoint, switch) => endpoint.or(switch),
        }
    }

    /// Ends the drain of a host's machines, except those that the NIC keeps waiting: handles their events (sending may
    /// have caused some) and sets their timers.
    pub(crate) fn rearm(&mut self, host: NodeId) {
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
    pub(crate) fn handle_timer(&mut self, now: Time) {
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
    pub(crate) fn set_switch_timers(&mut self) {
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

    /// Checks whether an operator has failed in a switch that has just worked.
    #[inline]
    pub(crate) fn check_operators(&mut self, switch: u32) {
        for at in 0..self.failures.watched.len() {
            let index = self.failures.watched[at];
            let pipelines = &self.switches[switch as usize].pipelines;
            let Some(why) = pipelines.iter().find_map(|pipeline| pipeline.fault(JobId(index.0 + 1))) else { continue };
            let (now, is_partitioned) = (self.fabric.now, self.fabric.is_partitioned());
            let failure = Failure { time: now, switch, why };
            if is_partitioned {
                note_first(&mut self.failures.local, index, failure);
            } else {
                let end = self.graph.lookahead().map_or(Time(now.0 + 1), |lookahead| window_end(now, lookahead));
                self.note_failures(vec![(index, failure)], end);
            }
        }
    }

    /// Notes failures, in any partition, during the window that ends at `end`, when ranks get them. Returns that time if
    /// there are new ones.
    pub fn note_failures(&mut self, failed: Vec<(JobIndex, Failure)>, end: Time) -> Option<Time> {
        let mut any_new = false;
        for (index, failure) in failed {
            if self.traffic.jobs.get(index).failed.is_none() && note_first(&mut self.failures.agreed, index, failure) {
                self.plan(end, Action::FailJob(index));
                any_new = true;
            }
        }
        any_new.then_some(end)
    }

    /// Aborts every rank of a job whose operator has failed.
    pub(crate) fn fail_job(&mut self, index: JobIndex) {
        self.failures.watched.retain(|&watched| watched != index);
        let Some(failure) = self.failures.agreed.remove(&index) else { return };
        self.traffic.jobs.get_mut(index).failed = Some(failure);
        let now = self.fabric.now;
        for number in 0..self.traffic.endpoints.len() {
            let endpoint = &mut self.traffic.endpoints[number];
            if endpoint.job != index || !endpoint.open || !endpoint.alive || !self.fabric.owns(endpoint.host) {
                continue;
            }
            let (id, rank, iteration) = (EndpointId(number as u32), endpoint.rank, endpoint.submitted);
            endpoint.machine.abort(now);
            endpoint.drain.begin();
            self.drain(id);
            // The machine of a rank that waited for no collective reports nothing.
            if self.traffic.endpoints[number].open {
                let error = JobError { time: now, rank, iteration, kind: JobErrorKind::OperatorFailed };
                self.traffic.jobs.get_mut(index).errors.push(error);
                self.finish_endpoint(id);
            }
        }
    }
}

// Several ranks on a host.

impl Simulation {
    /// Gives every host a memory.
    pub fn set_host_memory(&mut self, rate: Rate) {
        self.hosts.iter_mut().for_each(|host| host.memory = Some(Box::new(HostMemory::new(rate))));
    }

    /// Puts several ranks on each host of a job that is just installed, whose operations are the fragments of its
    /// collectives.
    pub fn set_host_ranks(&mut self, job: JobIndex, ranks: HostRanks) {
        let start = self.traffic.jobs.get(job).plan.start;
        self.traffic.jobs.get_mut(job).host_ranks = ranks;
        for (number, endpoint) in self.traffic.endpoints.iter().enumerate() {
            if endpoint.job == job && endpoint.open && self.fabric.owns(endpoint.host) {
                self.fabric.queue.push(start, EventId::new(EventKind::Submit, number as u32));
            }
        }
    }

    /// True if the leader has the sum of its host's ranks, and may submit it. If not, the ranks bring the first fragment of
    /// a collective now.
    pub(crate) fn has_come_to_leader(&mut self, id: EndpointId) -> bool {
        let endpoint = &self.traffic.endpoints[id.0 as usize];
        let (host, submitted) = (endpoint.host, endpoint.submitted);
        let job = self.traffic.jobs.get_mut(endpoint.job);
        if !job.host_ranks.is_several() {
            return true;
        }
        let memory = self.hosts[host.index()].memory.as_mut().expect("a host with several ranks has memory");
        if let Some(at) = memory.crossing.iter().position(|&crossing| crossing == id) {
            memory.crossing.swap_remove(at);
            return true;
        }
        job.iterations[submitted as usize].start.get_or_insert(self.fabric.now);
        self.bring(id, host);
        false
    }

    /// The next fragment of a collective follows the one that the leader has submitted.
    pub(crate) fn bring_next(&mut self, id: EndpointId) {
        let endpoint = &self.traffic.endpoints[id.0 as usize];
        let ranks = self.traffic.jobs.get(endpoint.job).host_ranks;
        if ranks.is_several() && !endpoint.submitted.is_multiple_of(ranks.fragments) {
            self.bring(id, endpoint.host);
        }
    }

    fn bring(&mut self, id: EndpointId, host: NodeId) {
        let endpoint = &self.traffic.endpoints[id.0 as usize];
        let job = self.traffic.jobs.get(endpoint.job);
        let memory = self.hosts[host.index()].memory.as_mut().expect("a host with several ranks has memory");
        let bytes = job.host_ranks.bytes_up(&job.plan.spec_of(endpoint.submitted), endpoint.rank);
        memory.crossing.push(id);
        let at = memory.carry_up(self.fabric.now, bytes);
        self.fabric.queue.push(at, EventId::new(EventKind::Submit, id.0));
    }
}
