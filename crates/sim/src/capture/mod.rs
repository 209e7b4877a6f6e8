//! A run packet by packet: as text, or as a file that Wireshark opens.

mod journeys;
mod pcapng;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

pub use journeys::{Found, JobJourneys, Journeys, Stage};
pub use pcapng::{PcapngCapture, PcapngSize, pcapng_size};

use crate::net::{PacketEvent, TraceEvent, Tracer};
use crate::topology::Graph;

/// A format in which a trace is written.
pub trait Capture: Send {
    /// Writes one event. `payload` is the packet's payload.
    fn write(&mut self, event: &TraceEvent, payload: &[u8]) -> io::Result<()>;
    /// Writes what is still in memory.
    fn finish(&mut self) -> io::Result<()>;
}

/// The events to be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Events from this time on.
    pub from: Option<Time>,
    /// Events up to this time.
    pub to: Option<Time>,
    /// Events at this node.
    pub node: Option<NodeId>,
    /// Events of the packet with this source and serial.
    pub packet: Option<(NodeId, u32)>,
}

impl Filter {
    fn wants(&self, event: &TraceEvent) -> bool {
        self.from.is_none_or(|from| event.time >= from)
            && self.to.is_none_or(|to| event.time <= to)
            && self.node.is_none_or(|node| event.node == node)
            && self.packet.is_none_or(|packet| (event.packet.src, event.packet.serial) == packet)
    }
}

/// Feeds a capture from a run; stops at its first error.
pub struct Recorder<C: Capture> {
    filter: Filter,
    capture: C,
    outcome: RecorderOutcome,
}

/// The result of writing, available after the run.
#[derive(Clone, Default)]
pub struct RecorderOutcome(Arc<Mutex<Option<io::Error>>>);

impl RecorderOutcome {
    /// The error that ended the writing, if one did.
    pub fn take_error(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// True if writing has failed.
    pub fn failed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl<C: Capture> Recorder<C> {
    /// A recorder, and its outcome.
    pub fn new(capture: C, filter: Filter) -> (Recorder<C>, RecorderOutcome) {
        let outcome = RecorderOutcome::default();
        (Recorder { filter, capture, outcome: outcome.clone() }, outcome)
    }

    fn note(&self, result: io::Result<()>) {
        if let Err(error) = result {
            *self.outcome.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

impl<C: Capture> Tracer for Recorder<C> {
    fn record(&mut self, event: &TraceEvent, payload: &[u8]) {
        if self.filter.wants(event) && !self.outcome.failed() {
            let result = self.capture.write(event, payload);
            self.note(result);
        }
    }
}

impl<C: Capture> Drop for Recorder<C> {
    fn drop(&mut self) {
        let result = self.capture.finish();
        if !self.outcome.failed() {
            self.note(result);
        }
    }
}

/// Writes events to a stream, a line each.
pub struct TextCapture<W> {
    names: Vec<String>,
    out: W,
}

impl<W: Write> TextCapture<W> {
    /// A capture of one network.
    pub fn new(graph: &Graph, out: W) -> TextCapture<W> {
        let names = (0..graph.nodes() as u32).map(|node| graph.name(NodeId(node))).collect();
        TextCapture { names, out }
    }
}

impl<W: Write + Send> Capture for TextCapture<W> {
    fn write(&mut self, event: &TraceEvent, payload: &[u8]) -> io::Result<()> {
        write_event(&mut self.out, &self.names, event, payload)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes one line: time, node, event, and the packet.
fn write_event(out: &mut impl Write, names: &[String], event: &TraceEvent, payload: &[u8]) -> io::Result<()> {
    let packet = &event.packet;
    let name = |node: u32| names.get(node as usize).map_or("?", String::as_str);
    let what = match event.kind {
        PacketEvent::Created => "created".to_string(),
        PacketEvent::Waits { link } => format!("waits for link {}", link.0),
        PacketEvent::Enqueued { link, start, end } => {
            format!("joins link {}, sent {:.6} to {:.6} us", link.0, start.0 as f64 * 1e-6, end.0 as f64 * 1e-6)
        }
        PacketEvent::Arrived { link } => format!("arrives from link {}", link.0),
        PacketEvent::Duplicated { link } => format!("is duplicated on link {}", link.0),
        PacketEvent::Reordered { link } => format!("is delayed on link {}", link.0),
        PacketEvent::Lost { link: Some(link), cause } => format!("is LOST on link {}: {}", link.0, cause.name()),
        PacketEvent::Lost { link: None, cause } => format!("is LOST: {}", cause.name()),
        PacketEvent::Delivered => "is delivered".to_string(),
    };
    write!(
        out,
        "{:14.6} us  {:<11} {}#{} to {} ({} bytes, {:?}, lane {}) {what}",
        event.time.0 as f64 * 1e-6,
        name(event.node.0),
        name(packet.src.0),
        packet.serial,
        name(packet.dst.0),
        packet.bytes,
        packet.flags.ecn(),
        packet.lane
    )?;
    if matches!(event.kind, PacketEvent::Created) && !payload.is_empty() {
        write!(out, "  ")?;
        payload.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
    }
    writeln!(out)
}
