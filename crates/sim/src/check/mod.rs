//! Checkers: the rules that every run must keep, checked from the trace alone.
//!
//! They share no code with the fabric: they compute from the graph what a link may do. A checker is a
//! [`Tracer`], and can be used in any run.

mod links;
mod packets;

use std::sync::{Arc, Mutex};

use self::links::{LinkChecker, LosslessChecker};
use self::packets::PacketChecker;
use crate::net::{Service, SharedBuffer, TraceEvent, Tracer};
use crate::topology::Graph;

/// A broken rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The event that breaks it.
    pub event: TraceEvent,
    /// The rule, in a sentence.
    pub what: String,
}

impl Violation {
    /// A sentence with the time, node and packet, as `tributary sim trace` names them, and the broken rule.
    pub fn sentence(&self, graph: &Graph) -> String {
        let TraceEvent { time, node, packet, .. } = &self.event;
        let (at, node, maker) = (time.0 as f64 * 1e-6, graph.name(*node), graph.name(packet.src));
        format!("at {at:.6} us, {node}, packet {maker}#{}: {}", packet.serial, self.what)
    }
}

/// All checkers together.
pub struct Checker {
    packets: PacketChecker,
    links: LinkChecker,
    lossless: Option<LosslessChecker>,
    findings: Findings,
    last: tributary_proto::contract::time::Time,
}

/// What the checkers have found; can be read during a run or after it.
#[derive(Clone, Default)]
pub struct Findings(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    violations: Vec<Violation>,
    events: u64,
    alive: usize,
}

/// One violation causes many others, so only the first ones are kept.
const MOST_VIOLATIONS: usize = 20;

impl Findings {
    /// The first violations.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// How many trace events there were.
    pub fn events(&self) -> u64 {
        self.lock().events
    }

    /// How many packets were created and neither delivered nor lost.
    pub fn alive(&self) -> usize {
        self.lock().alive
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Checker {
    /// Checkers for a network, and their findings.
    pub fn new(graph: &Graph) -> (Checker, Findings) {
        let findings = Findings::default();
        let checker = Checker {
            packets: PacketChecker::default(),
            links: LinkChecker::new(graph, None, None),
            lossless: None,
            findings: findings.clone(),
            last: Default::default(),
        };
        (checker, findings)
    }

    /// The same for switches whose queues may share a buffer, and may have classes.
    pub fn with_queues(graph: &Graph, shared: Option<SharedBuffer>, service: Option<Service>) -> (Checker, Findings) {
        let (checker, findings) = Checker::new(graph);
        (Checker { links: LinkChecker::new(graph, shared, service), ..checker }, findings)
    }

    /// The same for switches that forward a packet when its head has come in.
    pub fn cutting_through(mut self, graph: &Graph) -> Checker {
        self.links.cut_through(graph);
        self
    }

    /// The same for a network that must drop no packet.
    pub fn lossless(graph: &Graph) -> (Checker, Findings) {
        Checker::lossless_by_class(graph, 1)
    }

    /// The same where PAUSE stops this many classes, which share a port's buffer evenly.
    pub fn lossless_by_class(graph: &Graph, classes: usize) -> (Checker, Findings) {
        let (checker, findings) = Checker::new(graph);
        (Checker { lossless: Some(LosslessChecker::new(graph, classes as u64)), ..checker }, findings)
    }
}

impl Tracer for Checker {
    fn record(&mut self, event: &TraceEvent, _payload: &[u8]) {
        let mut sentences = Vec::new();
        if event.time < self.last {
            sentences.push("time ran backwards".to_string());
        }
        self.last = event.time;
        // The links need the packet's location before this event moves it.
        self.links.check(event, &self.packets, &mut sentences);
        self.packets.check(event, &mut sentences);
        if let Some(lossless) = &mut self.lossless {
            lossless.check(event, &mut sentences);
        }
        let mut state = self.findings.lock();
        state.events += 1;
        state.alive = self.packets.alive();
        let left = MOST_VIOLATIONS.saturating_sub(state.violations.len());
        state.violations.extend(sentences.into_iter().take(left).map(|what| Violation { event: *event, what }));
    }
}
