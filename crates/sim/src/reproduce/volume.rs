//! SwitchML §3: the data volume that each worker sends and receives, counted on its cable.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;
use tributary_proto::protocols;
use tributary_proto::ring;
use tributary_proto::switchml;

use super::finding::Finding;
use super::rack::{Rack, RackJob};
use super::{Context, Findings, ReproduceError, Watch};
use crate::net::{Happening, TraceEvent, Tracer};

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

/// Bytes of vectors that went through each worker's cable, both ways.
struct Meter {
    framing_bytes: u64,
    bytes: Arc<Mutex<Vec<u64>>>,
}

impl Tracer for Meter {
    fn record(&mut self, event: &TraceEvent, payload: &[u8]) {
        let mut bytes = self.bytes.lock().expect("nobody else holds it while the simulation runs");
        // A star's cables: both directions of cable `w` lead to or from worker `w`.
        let Happening::Joined { link, .. } = event.what else { return };
        if carries_vector(payload) {
            bytes[link.index() / 2] += u64::from(event.packet.bytes) - self.framing_bytes;
        }
    }
}

/// True for packets with a part of the tensor behind their headers.
fn carries_vector(payload: &[u8]) -> bool {
    let Ok(common) = tributary_proto::contract::wire::Common::parse(payload) else { return false };
    if common.protocol == protocols::named("ring").unwrap().code {
        common.kind == ring::wire::DATA
    } else {
        use switchml::wire::Kind;
        matches!(Kind::from_code(common.kind), Some(Kind::Update | Kind::Result))
    }
}

impl Volume {
    /// Findings `<protocol>-<workers>`, bytes of vectors sent and received by each worker.
    pub fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let jobs: Vec<RackJob> = [protocols::named("switchml").unwrap(), protocols::named("ring").unwrap()]
            .into_iter()
            .flat_map(|protocol| self.workers.iter().map(move |&workers| self.job(protocol, workers)))
            .collect();
        let counts = context.watch.all(&jobs, |job| count(job, context.watch))?;
        let mut findings = Findings::default();
        for (job, counts) in jobs.iter().zip(counts) {
            let least = *counts.iter().min().expect("there are workers") as f64;
            let greatest = *counts.iter().max().expect("there are workers") as f64;
            let key = format!("{}-{}", job.protocol.name, job.workers);
            findings.cause(&*key, format!("workers send and receive {least} to {greatest} bytes of vectors"));
            findings.value(key, Finding { low: least, high: greatest });
        }
        findings.note(format!(
            "Counted on every worker's cable, both ways: the vectors alone, without headers and acknowledgements, of a \
             tensor of {} bytes in packets of {} elements; no loss. A range is over the workers.",
            self.tensor_bytes, self.elements_per_packet
        ));
        Ok(findings)
    }

    fn job(&self, protocol: &'static Protocol, workers: u32) -> RackJob {
        RackJob {
            rack: self.rack,
            gbit: self.gbit,
            protocol,
            servers: None,
            workers,
            elements: self.tensor_bytes / 4,
            elements_per_packet: self.elements_per_packet,
            slots: self.slots,
            rto: None,
            loss: 0.0,
            seed: 1,
        }
    }
}

/// Bytes of vectors through each worker's cable.
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
