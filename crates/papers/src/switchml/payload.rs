//! SwitchML §5, "Supporting large packets": the share of a link's rate that framing leaves, by the elements of a
//! packet.

use serde::Deserialize;
use tributary_proto::switchml::PROTOCOL;

use super::rack::{Elements, Rack, RackJob};
use crate::finding::{Figure, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payload {
    /// The rack, with the paper's framing.
    pub rack: Rack,
    /// Link rate.
    pub gbit: u64,
    /// Ranks.
    pub workers: u32,
    /// Packets of the tensor.
    pub packets: u32,
    /// Pool size, large enough to fill the link.
    pub slots: u16,
    /// The packets' elements.
    pub elements_per_packet: Vec<u16>,
}

impl Experiment for Payload {
    /// Findings `k<elements>` (simulated) and `k<elements>-formula`, percent of the line rate.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let own = Rack { framing_bytes: None, ..self.rack };
        let jobs: Vec<RackJob> = [self.rack, own]
            .into_iter()
            .flat_map(|rack| self.elements_per_packet.iter().map(move |&k| self.job(rack, k)))
            .collect();
        let goodputs = context.watch.all(&jobs, |job| {
            let run = job.run(context.watch)?;
            Ok(100.0 * job.elements_per_second(&run) * 32.0 / (job.gbit as f64 * 1e9))
        })?;
        let mut findings = Findings::default();
        let mut lines = vec![Vec::new(); 4];
        for ((index, job), goodput) in jobs.iter().enumerate().zip(goodputs) {
            let k = job.elements_per_packet;
            let formula = 100.0 * job.rack.payload_share(k);
            let ours = usize::from(index >= self.elements_per_packet.len());
            lines[2 * ours].push([f64::from(k), goodput]);
            lines[2 * ours + 1].push([f64::from(k), formula]);
            if ours == 1 {
                findings.note(format!(
                    "With our own framing, {} bytes around a vector, {k} elements a packet leave {goodput:.1} % \
                     (simulated; {formula:.1} % by the formula).",
                    job.rack.framing_bytes()
                ));
                continue;
            }
            findings.value(format!("k{k}"), goodput);
            findings.value(format!("k{k}-formula"), formula);
            findings.cause(format!("k{k}"), self.cause(job, formula, goodput));
        }
        let names = [
            "paper's framing, simulated",
            "paper's framing, formula",
            "our framing, simulated",
            "our framing, formula",
        ];
        let series = names.iter().zip(lines).map(|(name, points)| Series::new(*name, points)).collect();
        findings.figures.push(Figure {
            title: "Goodput limit by the size of a packet".into(),
            x: "elements a packet".into(),
            y: "goodput (% of line rate)".into(),
            log_x: true,
            series,
            marks: Vec::new(),
        });
        Ok(findings)
    }
}

impl Payload {
    fn cause(&self, job: &RackJob, formula: f64, goodput: f64) -> String {
        format!(
            "the formula with {} bytes around a vector gives {formula:.2} %; the run adds the first round trip and the \
             wait for the last packet, {:.2} % of its time with {} packets",
            job.rack.framing_bytes(),
            100.0 * (1.0 - goodput / formula),
            self.packets
        )
    }

    fn job(&self, rack: Rack, elements_per_packet: u16) -> RackJob {
        RackJob {
            rack,
            gbit: self.gbit,
            protocol: &PROTOCOL,
            servers: None,
            workers: self.workers,
            elements: self.packets * u32::from(elements_per_packet),
            of: Elements::default(),
            elements_per_packet,
            slots: self.slots,
            rto: None,
            to_the_letter: false,
            host_ns: 0.0,
            loss: 0.0,
            seed: 1,
        }
    }
}
