//! SwitchML Figure 3: aggregated tensor elements per second (ATE/s) as the number of workers increases.

use serde::Deserialize;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

use super::rack::{Rack, RackJob, Servers};
use crate::finding::{Figure, Finding, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// The rack.
    pub rack: Rack,
    /// Elements in the tensor.
    pub elements: u32,
    /// Ranks, for each run.
    pub workers: Vec<u32>,
    /// Link rates, and the pool size at each.
    pub rates: Vec<RateAndPool>,
    /// The lines of the figure.
    pub lines: Vec<Line>,
}

/// A link rate and SwitchML's pool size there (appendix C).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateAndPool {
    /// Link rate.
    pub gbit: u64,
    /// Pool size for packets of 256 elements; smaller packets get more slots for the same bytes.
    pub slots: u16,
    /// What a packet costs a host's cores together, in nanoseconds, in lines whose hosts have some.
    #[serde(default)]
    pub host_ns: f64,
}

/// One line of the figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// The protocol.
    pub protocol: String,
    /// The servers that sum, if the protocol has any.
    #[serde(default)]
    pub servers: Option<Servers>,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// True if packets cost hosts time.
    #[serde(default)]
    pub busy_hosts: bool,
}

impl Line {
    fn protocol(&self) -> Result<&'static Protocol, ReproduceError> {
        protocols::named(&self.protocol)
            .ok_or_else(|| ReproduceError::Bad(format!("\"{}\" is not a protocol", self.protocol)))
    }
}

/// The measurements of one line at one rate, over the numbers of workers.
struct Measured<'a> {
    line: &'a Line,
    gbit: u64,
    ate: Vec<f64>,
    best: f64,
}

impl Experiment for Scaling {
    /// For each line and rate the findings `<line>-<gbit>-share` (percentage of the achievable rate) and
    /// `<line>-<gbit>-spread` (greatest ATE/s divided by the least); and `<line>-<gbit>-over-<other>` for each pair.
    /// Ranges are over the numbers of workers.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut jobs = Vec::new();
        for rate in &self.rates {
            for line in &self.lines {
                for &workers in &self.workers {
                    jobs.push(self.job(rate, line, workers)?);
                }
            }
        }
        let rates = context.watch.all(&jobs, |job| Ok(job.elements_per_second(&job.run(context.watch)?)))?;
        let mut measured = Vec::new();
        for (index, ate) in rates.chunks(self.workers.len()).enumerate() {
            let job = &jobs[index * self.workers.len()];
            let line = &self.lines[index % self.lines.len()];
            measured.push(Measured { line, gbit: job.gbit, ate: ate.to_vec(), best: job.best_elements_per_second() });
        }
        Ok(self.findings(&measured))
    }
}

impl Scaling {
    fn findings(&self, measured: &[Measured<'_>]) -> Findings {
        let mut findings = Findings::default();
        for one in measured {
            let name = format!("{}-{}", one.line.name, one.gbit);
            let range = Finding::over("workers", &one.ate);
            let shares: Vec<f64> = one.ate.iter().map(|ate| 100.0 * ate / one.best).collect();
            findings.value(format!("{name}-share"), Finding::over("workers", &shares));
            findings.value(format!("{name}-spread"), range.high / range.low);
            for other in measured.iter().filter(|other| other.gbit == one.gbit && other.line != one.line) {
                let ratios: Vec<f64> = one.ate.iter().zip(&other.ate).map(|(a, b)| a / b).collect();
                let key = format!("{name}-over-{}", other.line.name);
                findings.cause(&*key, self.cause(one.line, &ratios));
                findings.value(key, Finding::over("workers", &ratios));
            }
        }
        for rate in &self.rates {
            findings.figures.push(self.figure(rate.gbit, measured));
        }
        findings.note(format!(
            "The achievable rate is the link's, less {} bytes of framing around each vector (see switchml-payload).",
            self.rack.framing_bytes()
        ));
        findings
    }

    fn cause(&self, line: &Line, ratios: &[f64]) -> String {
        let text = format!("by workers {:?} the ratio is {}", self.workers, listed(ratios));
        if line.servers != Some(Servers::Colocated) {
            return text;
        }
        let share: Vec<f64> = self.workers.iter().map(|&n| f64::from(n) / f64::from(2 * (n - 1))).collect();
        format!(
            "{text}: what a worker keeps for its own server never crosses its cable, so n/(2(n-1)) = {} is what the \
             links allow; half is the limit of many workers",
            listed(&share)
        )
    }

    fn figure(&self, gbit: u64, measured: &[Measured<'_>]) -> Figure {
        let line = |one: &Measured<'_>| {
            Series::new(
                &one.line.name,
                self.workers.iter().zip(&one.ate).map(|(&n, &ate)| [f64::from(n), ate / 1e6]).collect(),
            )
        };
        Figure {
            title: format!("Aggregated tensor elements per second, {gbit} Gbit/s"),
            x: "workers".into(),
            y: "ATE/s (10^6)".into(),
            log_x: false,
            series: measured.iter().filter(|one| one.gbit == gbit).map(line).collect(),
            marks: Vec::new(),
        }
    }

    fn job(&self, rate: &RateAndPool, line: &Line, workers: u32) -> Result<RackJob, ReproduceError> {
        let slots = u32::from(rate.slots) * 256 / u32::from(line.elements_per_packet);
        Ok(RackJob {
            servers: line.servers,
            workers,
            elements: self.elements,
            elements_per_packet: line.elements_per_packet,
            slots: u16::try_from(slots).map_err(|_| ReproduceError::Bad(format!("{slots} slots are too many")))?,
            host_ns: if line.busy_hosts { rate.host_ns } else { 0.0 },
            ..RackJob::ideal(self.rack, rate.gbit, line.protocol()?)
        })
    }
}

fn listed(numbers: &[f64]) -> String {
    numbers.iter().map(|number| format!("{number:.3}")).collect::<Vec<_>>().join(", ")
}
