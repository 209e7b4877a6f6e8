//! SwitchML §3: the volume of data that each worker sends and receives, counted on its cable.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;
use tributary_proto::protocols;
use tributary_proto::switchml::PROTOCOL;
use tributary_sim::net::{PacketEvent, TraceEvent, Tracer};

use super::rack::{Rack, RackJob};
use super::ring;
use crate::finding::Finding;
use crate::{Context, Experiment, Findings, ReproduceError, Watch};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// The rack.
    pub rack: Rack,
    /// Link rate.
    pub gbit: u64,
    /// Ranks, for each run.
    pub workers: Vec<u32>,
    /// `|U|`, bytes.
    pub tensor_bytes: u32,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// Pool size.
    pub slots: u16,
}

/// Bytes of vectors that passed each worker's cable, both ways.
struct Meter {
    framing_bytes: u64,
    bytes: Arc<Mutex<Vec<u64>>>,
}

impl Tracer for Meter {
    fn record(&mut self, event: &TraceEvent, payload: &[u8]) {
        let mut bytes = self.bytes.lock().expect("nobody else holds it while the simulation runs");
        // A star's cables: both directions of cable `w` lead to or from worker `w`.
        let PacketEvent::Enqueued { link, .. } = event.kind else { return };
        if carries_vector(payload) {
            bytes[link.index() / 2] += u64::from(event.packet.bytes) - self.framing_bytes;
        }
    }
}

/// True for packets that carry elements of the tensor.
fn carries_vector(payload: &[u8]) -> bool {
    let protocol = Common::parse(payload).ok().and_then(|common| protocols::with_code(common.protocol));
    protocol.is_some_and(|protocol| (protocol.describe)(payload).has_vector)
}

impl Experiment for Volume {
    /// Findings `<protocol>-<workers>`, bytes of vectors sent and received by each worker.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let jobs: Vec<RackJob> = [&PROTOCOL, ring()?]
            .into_iter()
            .flat_map(|protocol| self.workers.iter().map(move |&workers| self.job(protocol, workers)))
            .collect();
        let counts = context.watch.all(&jobs, |job| count(job, context.watch))?;
        let mut findings = Findings::default();
        for (job, counts) in jobs.iter().zip(counts) {
            let bytes: Vec<f64> = counts.iter().map(|&bytes| bytes as f64).collect();
            let range = Finding::over("workers", &bytes);
            let key = format!("{}-{}", job.protocol.name, job.workers);
            findings.cause(&*key, format!("workers send and receive {} to {} bytes of vectors", range.low, range.high));
            findings.value(key, range);
        }
        findings.note(format!(
            "Counted on every worker's cable, both ways: the vectors alone, without headers and acknowledgements, of a \
             tensor of {} bytes in packets of {} elements; no loss. A range is over the workers.",
            self.tensor_bytes, self.elements_per_packet
        ));
        Ok(findings)
    }
}

impl Volume {
    fn job(&self, protocol: &'static Protocol, workers: u32) -> RackJob {
        RackJob {
            workers,
            elements: self.tensor_bytes / 4,
            elements_per_packet: self.elements_per_packet,
            slots: self.slots,
            ..RackJob::ideal(self.rack, self.gbit, protocol)
        }
    }
}

/// Counts the bytes of vectors that pass each worker's cable.
fn count(job: &RackJob, watch: &Watch<'_>) -> Result<Vec<u64>, ReproduceError> {
    let bytes = Arc::new(Mutex::new(vec![0; job.workers as usize]));
    let mut sim = job.build()?;
    sim.fabric
        .set_tracer(Some(Box::new(Meter { framing_bytes: u64::from(job.rack.framing_bytes()), bytes: bytes.clone() })));
    sim.run_until_finished(Time(u64::MAX));
    job.finish(&sim, watch)?;
    let counts = bytes.lock().expect("the simulation is over").clone();
    Ok(counts)
}
