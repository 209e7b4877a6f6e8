//! The size of a capture, before it is written: the run is made once without it.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tributary_proto::contract::time::Time;

use super::pcapng::{PcapngCapture, block_len};
use super::{Capture, Filter, Recorder};
use crate::engine::Simulation;
use crate::net::TraceEvent;

/// The size of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapngSize {
    /// Bytes of the file.
    pub bytes: u64,
    /// Packets in it, one for each link that a packet joins.
    pub packets: u64,
    /// The time up to which packets were counted, if the run goes on after it.
    pub until: Option<Time>,
}

/// Runs a simulation up to `end` or for at most `most_events`, and counts the size of a capture of all of it.
pub fn pcapng_size(mut simulation: Simulation, end: Time, most_events: u64) -> io::Result<PcapngSize> {
    let counts = Counts::default();
    // The head of the file, which names every node.
    drop(PcapngCapture::new(simulation.graph(), counts.clone())?);
    let (recorder, _) = Recorder::new(counts.clone(), Filter::default());
    simulation.fabric.set_tracer(Some(Box::new(recorder)));
    let mut left = most_events;
    while left > 0 && simulation.open() > 0 && simulation.step(end) {
        left -= 1;
    }
    let goes_on = left == 0 && simulation.open() > 0;
    Ok(PcapngSize {
        bytes: counts.bytes.load(Ordering::Relaxed),
        packets: counts.packets.load(Ordering::Relaxed),
        until: goes_on.then_some(simulation.fabric.now),
    })
}

/// A writer that counts bytes and keeps none.
#[derive(Clone, Default)]
struct Counts {
    bytes: Arc<AtomicU64>,
    packets: Arc<AtomicU64>,
}

impl Write for Counts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Capture for Counts {
    fn write(&mut self, event: &TraceEvent, payload: &[u8]) -> io::Result<()> {
        if let Some(len) = block_len(event, payload.len()) {
            self.bytes.fetch_add(len, Ordering::Relaxed);
            self.packets.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}
