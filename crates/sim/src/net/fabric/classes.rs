//! What the fabric does at switches whose output ports serve packets by class (see [`crate::net::classes`]).

use super::Fabric;
use crate::events::{EventId, EventKind};
use crate::net::classes::{ClassQueues, Service, header_of};
use crate::net::packet::{Packet, PacketFlags};
use crate::net::trace::{LossCause, PacketEvent};
use crate::topology::{Graph, LinkId};

/// The queues of all switches.
pub(in crate::net) struct Classes {
    service: Service,
    /// By link: those of links from hosts stay empty.
    ports: Vec<ClassQueues>,
    /// The class of each job's packets; 0 of those beyond.
    of_jobs: Vec<u8>,
    /// The bytes of headers that go on where data does not fit.
    trimmed_bytes: Option<u16>,
}

impl Fabric {
    /// Makes the output ports of switches serve packets by class, before anything is sent.
    pub fn set_service(&mut self, service: Service, graph: &Graph) {
        if let Some(lossless) = &mut self.lossless {
            lossless.pause_classes(service.clone());
            self.links.iter_mut().for_each(|link| link.faulty = true);
            self.classes =
                Some(Box::new(Classes { service, ports: Vec::new(), of_jobs: Vec::new(), trimmed_bytes: None }));
            return;
        }
        let ports = self.links.iter().map(|_| ClassQueues::default()).collect();
        self.classes = Some(Box::new(Classes { service, ports, of_jobs: Vec::new(), trimmed_bytes: None }));
        for link in &mut self.links {
            link.serves_classes = graph.switch_index(link.from).is_some();
            link.faulty |= link.serves_classes;
        }
    }

    /// Makes switches, which serve classes, trim what does not fit to a transport's header of these bytes on a link.
    pub fn set_trimming(&mut self, header_bytes: u16) {
        self.classes.iter_mut().for_each(|classes| classes.trimmed_bytes = Some(header_bytes));
    }

    /// Sets the class of all packets of a job.
    pub fn set_job_class(&mut self, job: usize, class: u8) {
        let Some(classes) = &mut self.classes else { return };
        classes.of_jobs.resize(classes.of_jobs.len().max(job + 1), 0);
        classes.of_jobs[job] = class;
    }

    /// Sends a packet into a link that is down, shares a buffer, serves classes or cuts through; `None` if it takes the packet
    /// as any other.
    #[cold]
    pub(super) fn send_with_care(&mut self, id: LinkId, packet: Packet) -> Option<bool> {
        if let Some(cause) = self.refuses(id, &packet) {
            self.lose(id, self.near_end(id), cause, &packet);
            return Some(false);
        }
        match (self.links[id.index()].serves_classes, self.links[id.index()].cuts_through) {
            (true, _) => Some(self.send_by_class(id, packet)),
            (false, true) => Some(self.send_ahead(id, packet)),
            (false, false) => None,
        }
    }

    /// Puts a packet into the queue of its class; false if that is full, so that the packet is lost.
    fn send_by_class(&mut self, id: LinkId, mut packet: Packet) -> bool {
        packet.flags = self.flags_with_class(&packet);
        let Some(classes) = &mut self.classes else { return false };
        let (link, queues) = (&mut self.links[id.index()], &mut classes.ports[id.index()]);
        let mut fits = link.join_class(self.now, packet.bytes, queues.bytes_of(packet.flags), &mut packet.flags);
        if !fits && let Some(header) = classes.trimmed_bytes.and_then(|bytes| header_of(&packet, bytes)) {
            packet = header;
            fits = link.join_class(self.now, packet.bytes, queues.bytes_of(packet.flags), &mut packet.flags);
            self.losses[id.index()][LossCause::Trimmed as usize] += u64::from(fits);
        }
        if !fits {
            self.lose(id, self.near_end(id), LossCause::QueueFull, &packet);
            return false;
        }
        let is_idle = link.busy_until() <= self.now && queues.is_empty();
        if !is_idle {
            queues.push(packet);
            if !std::mem::replace(&mut queues.is_armed, true) {
                self.queue.push(link.busy_until(), EventId::new(EventKind::Departure, id.0));
            }
        }
        if self.tracer.is_some() {
            self.record(self.near_end(id), PacketEvent::Waits { link: id }, &packet);
        }
        if is_idle {
            self.leave(id, packet);
        }
        true
    }

    /// Bytes that wait in the class of a packet at a port that serves classes.
    pub(super) fn bytes_of_class(&self, id: LinkId, packet: &Packet) -> Option<u64> {
        let classes = self.classes.as_ref().filter(|_| self.links[id.index()].serves_classes)?;
        Some(classes.ports[id.index()].bytes_of(self.flags_with_class(packet)))
    }

    /// A packet's flags, with its job's class if it belongs to one and jobs have classes.
    pub(super) fn flags_with_class(&self, packet: &Packet) -> PacketFlags {
        match (&self.classes, packet.job()) {
            (Some(classes), Some(job)) => packet.flags.with_priority(classes.of_jobs.get(job).copied().unwrap_or(0)),
            _ => packet.flags,
        }
    }

    /// A link has finished a packet while others waited: the next one leaves.
    #[cold]
    pub(super) fn depart_by_class(&mut self, id: LinkId) {
        let Some(classes) = &mut self.classes else { return };
        let queues = &mut classes.ports[id.index()];
        let next = queues.pop(&classes.service);
        queues.is_armed = !queues.is_empty();
        let goes_on = queues.is_armed;
        if let Some(packet) = next {
            self.leave(id, packet);
        }
        if goes_on {
            let until = self.links[id.index()].busy_until();
            self.queue.push(until, EventId::new(EventKind::Departure, id.0));
        }
    }

    /// A packet begins to leave a link that is free.
    fn leave(&mut self, id: LinkId, packet: Packet) {
        let link = &mut self.links[id.index()];
        let whole = link.begin(self.now, packet.bytes);
        let arrival = link.arrival_of(&packet, whole);
        self.depart_with(id, Packet { arrival, ..packet });
    }

    /// A link has another rate: what waits before it takes another time.
    pub(super) fn recount_waiting(&mut self, id: LinkId) {
        if let Some(classes) = &self.classes {
            let packets = classes.ports[id.index()].packets().map(|packet| packet.bytes);
            self.links[id.index()].recount_waiting(packets);
        }
    }
}
