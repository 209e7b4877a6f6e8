//! The members of jobs: the collectives that they submit, the packets that they receive, and the events that they
//! report.

use tributary_proto::contract::drive;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::NodeId;

use super::jobs::JobIndex;
use super::seat::{HostSeat, HostSeatId};
use super::simulation::{Simulation, Traffic};
use crate::events::{EventId, EventKind};
use crate::net::Packet;

impl Simulation {
    /// A rank submits its next collective.
    pub(super) fn submit(&mut self, id: HostSeatId) {
        let now = self.fabric.now;
        let Traffic { seats, jobs, .. } = &mut self.traffic;
        let seat = &mut seats[id.0 as usize];
        let job = jobs.get_mut(seat.job);
        if !seat.alive || seat.submitted == job.plan.iterations {
            return;
        }
        // Later collectives are submitted late from the beginning.
        let first = job.plan.start + job.lateness(seat.rank);
        if now < first {
            return self.fabric.queue.push(first, EventId::new(EventKind::Source, id.0));
        }
        let deadline = job.plan.timeout.map(|timeout| now + timeout);
        let tensor = job.tensor(seat.rank, seat.submitted, now);
        seat.submitted += 1;
        match seat.machine.submit(now, Collective { tensor, deadline }) {
            Ok(_) => {
                seat.drain.begin();
                self.drain(id);
            }
            // A failed job refuses collectives; it has complained already.
            Err(_) => self.close(id),
        }
    }

    pub(super) fn receive_of_job(&mut self, host: NodeId, job: JobIndex, packet: Packet) {
        let Traffic { seats, jobs, .. } = &mut self.traffic;
        let seat = self.hosts[host.index()].seats.iter().copied().find(|seat| seats[seat.0 as usize].job == job);
        if let Some(seat) = seat {
            let member = &mut seats[seat.0 as usize];
            if member.alive {
                member.receive(&self.fabric, jobs, &packet);
                self.drain(seat);
            }
        }
        self.fabric.payloads.release(packet.payload);
    }

    /// The drain rule of `contract::host`: transmit while the NIC takes packets, then events, then the timeout.
    pub(super) fn drain(&mut self, seat: HostSeatId) {
        let host = self.traffic.seats[seat.0 as usize].host;
        self.hosts[host.index()].fill_nic(&mut self.fabric, &mut self.traffic);
        self.hear(seat);
        self.rearm(host);
    }

    /// Takes the events of a machine.
    pub(super) fn hear(&mut self, id: HostSeatId) {
        let Traffic { seats, jobs, .. } = &mut self.traffic;
        let HostSeat { machine, job, rank, submitted, completed, .. } = &mut seats[id.0 as usize];
        let mut ends = false;
        drive::host::drain_events(&mut **machine, |event| {
            let job = jobs.get_mut(*job);
            let done = matches!(event, HostEvent::Done { .. });
            job.hear(*rank, event, self.fabric.now);
            *completed += u32::from(done);
            if done && *submitted < job.plan.iterations {
                let at = self.fabric.now + job.plan.compute + job.lateness(*rank);
                self.fabric.queue.push(at, EventId::new(EventKind::Source, id.0));
            } else {
                ends = true;
            }
        });
        if ends {
            self.close(id);
        }
    }
}
