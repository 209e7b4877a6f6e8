//! PANAMA figure 1: the share of communication in training, and the speed-up from halving it.

use serde::Deserialize;
use tributary_sim::config::DataRate;

use crate::finding::{Figure, Finding, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is computed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speedup {
    /// A worker's link.
    pub rate: DataRate,
    /// Models, with the speed at which one GPU trains them.
    pub models: Vec<Model>,
    /// §2's job: its workers, the bytes of its model, its iterations.
    pub job: Job,
}

/// A model, and the speed at which one GPU trains it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Findings are named after it.
    pub name: String,
    /// How many parameters it has, of four bytes each.
    pub parameters: f64,
    /// Images in an iteration.
    pub batch: f64,
    /// Images that the GPU trains in a second.
    pub images_per_s: f64,
}

/// A training job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Workers.
    pub workers: f64,
    /// Bytes of its gradients.
    pub model_bytes: f64,
    /// Iterations.
    pub iterations: f64,
}

impl Model {
    /// The share of communication in an iteration, if none of it overlaps with computation: gradients go out and their
    /// sums come in.
    fn communication(&self, bits_per_s: f64) -> f64 {
        let communication = 2.0 * 32.0 * self.parameters / bits_per_s;
        communication / (communication + self.batch / self.images_per_s)
    }
}

/// The speed-up of training when communication takes half as long.
fn halved(communication: f64) -> f64 {
    1.0 / (1.0 - communication / 2.0)
}

impl Experiment for Speedup {
    /// Findings `share-<model>` and `speedup-<model>`, `least-speedup`, `greatest-speedup`, `greatest-share`, and
    /// `petabytes` that §2's job moves.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.models.is_empty() {
            return Err(ReproduceError::Bad("a figure of models needs one at least".into()));
        }
        let mut findings = Findings::default();
        let rate = self.rate.0.0 as f64;
        let shares: Vec<f64> = self.models.iter().map(|model| model.communication(rate)).collect();
        let speedups: Vec<f64> = shares.iter().map(|&share| halved(share)).collect();
        for ((model, &share), &speedup) in self.models.iter().zip(&shares).zip(&speedups) {
            findings.value(format!("share-{}", model.name), share);
            findings.value(format!("speedup-{}", model.name), speedup);
            findings.note(format!(
                "{}: {share:.3} of an iteration is communication, {speedup:.3} times as fast",
                model.name
            ));
        }
        let range = Finding::over("models", &speedups);
        findings.value("least-speedup", range.low);
        findings.value("greatest-speedup", range.high);
        findings.value("greatest-share", Finding::over("models", &shares).high);
        let Job { workers, model_bytes, iterations } = self.job;
        findings.value("petabytes", 2.0 * workers * model_bytes * iterations / 1e15);
        findings.note(format!("With S bytes of gradients communication takes 2S/B, B = {} Gbit/s.", rate / 1e9));
        findings.figures.push(self.figure(&shares, &speedups));
        Ok(findings)
    }
}

impl Speedup {
    fn figure(&self, shares: &[f64], speedups: &[f64]) -> Figure {
        let mut points: Vec<[f64; 2]> = shares.iter().zip(speedups).map(|(&x, &y)| [x, y]).collect();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        Figure {
            title: "Speed-up of training when communication takes half as long".into(),
            x: "share of communication".into(),
            y: "speed-up".into(),
            log_x: false,
            series: vec![Series::new("models", points)],
            marks: Vec::new(),
        }
    }
}
