//! Follows what hosts of a job receive back to the host that sent it: along the links, and through the programs in switches
//! that made one packet of another. A switch makes a result of the packet that completes the sum. So the way back from a
//! result leads over the packets for which it had to wait, to the rank that was last.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use crate::engine::JobIndex;
use crate::net::{Packet, PacketEvent, TraceEvent, Tracer};
use crate::topology::LinkId;

/// Where the time of a journey goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// In the queue before a link, and onto the link.
    Link(LinkId),
    /// In a switch's accelerator, on its cores, or in its programs.
    Switch(NodeId),
}

/// The journeys that ended at hosts of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobJourneys {
    /// How many there were.
    pub packets: u64,
    /// How long all of them took together.
    pub time: Span,
    /// By stage, how long those journeys took of which the stage took the most.
    pub bottlenecks: BTreeMap<Stage, Span>,
    /// By host, how often its packet completed a sum.
    pub last: BTreeMap<NodeId, u64>,
    /// Packets that began in a switch: those that timers sent.
    pub begun_in_switches: u64,
}

/// The journeys of a run by job, while it goes on and when it is over.
#[derive(Clone, Default)]
pub struct Found(Arc<Mutex<BTreeMap<JobIndex, JobJourneys>>>);

impl Found {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobIndex, JobJourneys>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of one job.
    pub fn of(&self, job: JobIndex) -> JobJourneys {
        self.lock().get(&job).cloned().unwrap_or_default()
    }
}

/// The way of one packet so far, and of those that it was made of.
#[derive(Clone, Copy)]
struct Journey {
    begun: Time,
    /// The host that began it; `None` for a switch.
    origin: Option<NodeId>,
    /// When it joined the queue, or reached the switch, where it is now.
    since: Time,
    longest: Option<(Span, Stage)>,
    /// True if a program has made the packet of another.
    was_handled: bool,
    /// True once its origin is counted as last.
    is_counted: bool,
}

impl Journey {
    fn spend(&mut self, until: Time, stage: Stage) {
        let took = until.since(self.since);
        // Of equal ones the first.
        if self.longest.is_none_or(|(longest, _)| took > longest) {
            self.longest = Some((took, stage));
        }
        self.since = until;
    }
}

/// Source and serial.
type PacketName = (NodeId, u32);

fn name(packet: &Packet) -> PacketName {
    (packet.src, packet.serial)
}

/// The packet that a switch's program has handled last.
struct Handled {
    node: NodeId,
    time: Time,
    journey: Journey,
    /// The first packet that the switch has made of it.
    first: Option<PacketName>,
}

/// The tracer that follows packets.
pub struct Journeys {
    hosts: u32,
    found: Found,
    open: HashMap<PacketName, Journey>,
    handled: Option<Handled>,
}

impl Journeys {
    /// A tracer for a network with this number of hosts, and what it will have found.
    pub fn new(hosts: u32) -> (Journeys, Found) {
        let found = Found::default();
        (Journeys { hosts, found: found.clone(), open: HashMap::new(), handled: None }, found)
    }

    fn note(&self, packet: &Packet, note: impl FnOnce(&mut JobJourneys)) {
        if let Some(job) = JobIndex::of_flow(packet.flow) {
            note(self.found.lock().entry(job).or_default());
        }
    }

    /// A packet is made: by a host, by a program of another packet, or by a program whose timer has run out.
    fn begin(&mut self, now: Time, node: NodeId, packet: &Packet) {
        let Some(handled) = self.handled.as_mut().filter(|handled| (handled.node, handled.time) == (node, now)) else {
            let origin = (node.0 < self.hosts).then_some(node);
            let own = Journey { begun: now, origin, since: now, longest: None, was_handled: false, is_counted: false };
            self.open.insert(name(packet), own);
            if origin.is_none() {
                self.note(packet, |job| job.begun_in_switches += 1);
            }
            return;
        };
        // Several copies are a result for several ranks.
        let completes = handled.first.is_some() && !handled.journey.is_counted;
        handled.journey.is_counted |= completes;
        let (journey, first) = (handled.journey, *handled.first.get_or_insert(name(packet)));
        self.open.insert(name(packet), journey);
        if completes {
            self.open.entry(first).and_modify(|copy| copy.is_counted = true);
            self.note(packet, |job| job.count_last(journey.origin));
        }
    }

    /// A packet has reached its host.
    fn end(&mut self, now: Time, host: NodeId, packet: &Packet) {
        let Some(journey) = self.open.remove(&name(packet)) else { return };
        self.note(packet, |job| {
            let took = now.since(journey.begun);
            job.packets += 1;
            job.time = job.time + took;
            if let Some((_, stage)) = journey.longest {
                let time = job.bottlenecks.entry(stage).or_default();
                *time = *time + took;
            }
            // A result for one rank. What a rank gets back alone is a result that it was sent again.
            if journey.was_handled && !journey.is_counted && journey.origin != Some(host) {
                job.count_last(journey.origin);
            }
        });
    }
}

impl JobJourneys {
    fn count_last(&mut self, origin: Option<NodeId>) {
        origin.into_iter().for_each(|host| *self.last.entry(host).or_default() += 1);
    }
}

impl Tracer for Journeys {
    fn record(&mut self, event: &TraceEvent, _: &[u8]) {
        let TraceEvent { time, node, kind, packet } = event;
        if !packet.is_of_job() {
            return;
        }
        match *kind {
            PacketEvent::Created => self.begin(*time, *node, packet),
            PacketEvent::Enqueued { link, end, .. } => {
                self.open.entry(name(packet)).and_modify(|journey| journey.spend(end, Stage::Link(link)));
            }
            PacketEvent::Arrived { .. } => {
                self.open.entry(name(packet)).and_modify(|journey| journey.since = *time);
            }
            PacketEvent::Delivered if node.0 < self.hosts => self.end(*time, *node, packet),
            PacketEvent::Lost { .. } => {
                self.open.remove(&name(packet));
            }
            PacketEvent::Delivered
            | PacketEvent::Waits { .. }
            | PacketEvent::Duplicated { .. }
            | PacketEvent::Reordered { .. } => {}
        }
    }

    fn record_handled(&mut self, time: Time, node: NodeId, packet: &Packet) {
        self.handled = self.open.remove(&name(packet)).map(|mut journey| {
            journey.spend(time, Stage::Switch(node));
            Handled { node, time, journey: Journey { was_handled: true, ..journey }, first: None }
        });
    }
}
