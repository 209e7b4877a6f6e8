//! The members of jobs: the collectives that they submit, the packets that they receive, and the events that they
//! report.

use tributary_proto::contract::drive;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::NodeId;

use super::endpoint::{Endpoint, EndpointId};
use super::jobs::JobIndex;
use super::simulation::{Simulation, Traffic};
use crate::events::{EventId, EventKind};
use crate::net::Packet;

impl Simulation {
    /// A rank submits its next collective.
    pub(super) fn submit(&mut self, id: EndpointId) {
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
        let deadline = job.plan.timeout.map(|timeout| now + timeout);
        let tensor = job.tensor(endpoint.rank, endpoint.submitted, now);
        endpoint.submitted += 1;
        match endpoint.machine.submit(now, Collective { tensor, deadline }) {
            Ok(_) => {
                endpoint.drain.begin();
                self.drain(id);
            }
            // A failed job refuses collectives; its error is recorded already.
            Err(_) => self.finish_endpoint(id),
        }
    }

    pub(super) fn receive_of_job(&mut self, host: NodeId, job: JobIndex, packet: Packet) {
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
    pub(super) fn drain(&mut self, endpoint: EndpointId) {
        let host = self.traffic.endpoints[endpoint.0 as usize].host;
        self.hosts[host.index()].fill_nic(&mut self.fabric, &mut self.traffic);
        self.poll_events(endpoint);
        self.rearm(host);
    }

    /// Handles the events of a machine.
    pub(super) fn poll_events(&mut self, id: EndpointId) {
        let Traffic { endpoints, jobs, .. } = &mut self.traffic;
        let Endpoint { machine, job, rank, submitted, completed, .. } = &mut endpoints[id.0 as usize];
        let mut ends = false;
        drive::host::tell(&mut **machine, |event| {
            let job = jobs.get_mut(*job);
            let done = matches!(event, HostEvent::Done { .. });
            job.handle_event(*rank, event, self.fabric.now);
            *completed += u32::from(done);
            if done && *submitted < job.plan.iterations {
                let at = self.fabric.now + job.plan.compute + job.lateness(*rank);
                self.fabric.queue.push(at, EventId::new(EventKind::Submit, id.0));
            } else {
                ends = true;
            }
        });
        if ends {
            self.finish_endpoint(id);
        }
    }
}
