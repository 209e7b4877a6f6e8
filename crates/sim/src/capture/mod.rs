//! A run packet by packet: as text, or as a file that Wireshark opens.

mod pcapng;
mod size;
mod text;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

pub use pcapng::PcapngCapture;
pub use size::{PcapngSize, pcapng_size};
pub use text::TextCapture;

use crate::net::{TraceEvent, Tracer};

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
