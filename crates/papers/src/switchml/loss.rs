//! SwitchML Figure 6: how much loss on every link lengthens the aggregation of a tensor.

use serde::Deserialize;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::switchml::PROTOCOL;

use super::rack::LossyRack;
use super::ring;
use crate::finding::{Figure, Finding, Series, mean};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// The job, without its loss.
    #[serde(flatten)]
    pub setup: LossyRack,
    /// Percent of packets that every link loses.
    pub losses: Vec<f64>,
}

/// One protocol at one loss.
struct Point {
    protocol: &'static Protocol,
    loss: f64,
    /// Aggregation times, by seed.
    tat: Vec<f64>,
    /// Packets that all ranks sent again, by seed.
    again: Vec<f64>,
}

impl Experiment for Loss {
    /// Findings `<protocol>-<percent>` (time divided by the same protocol's without loss) and
    /// `ring-over-switchml-<percent>` (ring's time divided by SwitchML's).
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut jobs = Vec::new();
        let ring = ring()?;
        for protocol in [&PROTOCOL, ring] {
            for loss in std::iter::once(0.0).chain(self.losses.iter().copied()) {
                let seeds = if loss > 0.0 { context.seeds } else { 1 };
                jobs.extend((1..=seeds).map(|seed| self.setup.job(protocol, loss, seed)));
            }
        }
        let runs = context.watch.all(&jobs, |job| {
            let run = job.run(context.watch)?;
            let again: u64 = run.stats.iter().map(|stats| stats.retransmissions).sum();
            Ok((run.tat.as_secs_f64(), again as f64))
        })?;
        let mut points: Vec<Point> = Vec::new();
        for (job, (tat, again)) in jobs.iter().zip(runs) {
            let loss = 100.0 * job.loss;
            match points.last_mut() {
                Some(point) if point.protocol == job.protocol && (point.loss - loss).abs() < 1e-9 => {
                    point.tat.push(tat);
                    point.again.push(again);
                }
                _ => points.push(Point { protocol: job.protocol, loss, tat: vec![tat], again: vec![again] }),
            }
        }
        Ok(self.findings(ring, &points))
    }
}

impl Loss {
    fn findings(&self, ring: &'static Protocol, points: &[Point]) -> Findings {
        let mut findings = Findings::default();
        let at = |protocol, loss: f64| {
            points.iter().find(|point| point.protocol == protocol && (point.loss - loss).abs() < 1e-9)
        };
        let mut lines = Vec::new();
        for protocol in [&PROTOCOL, ring] {
            let Some(without) = at(protocol, 0.0) else { continue };
            let base = without.tat[0];
            let mut line = Series::new(protocol.name, Vec::new());
            for point in points.iter().filter(|point| point.protocol == protocol && point.loss > 0.0) {
                let inflation: Vec<f64> = point.tat.iter().map(|tat| tat / base).collect();
                let key = format!("{}-{}", protocol.name, point.loss);
                findings.cause(&*key, self.cause(point, base));
                let range = Finding::over("seeds", &inflation);
                findings.value(key, range);
                line.points.push([point.loss, range.median]);
                line.ranges.push([range.low, range.high]);
            }
            findings.note(format!("{} without loss takes {:.3} ms.", protocol.name, 1e3 * base));
            lines.push(line);
        }
        for &loss in &self.losses {
            if let (Some(ours), Some(ring)) = (at(&PROTOCOL, loss), at(ring, loss)) {
                let key = format!("ring-over-switchml-{loss}");
                let ratios: Vec<f64> = ring.tat.iter().zip(&ours.tat).map(|(ring, ours)| ring / ours).collect();
                findings.value(&*key, Finding::over("seeds", &ratios));
                let [ring, ours] = [ring, ours].map(|point| 1e3 * mean(&point.tat));
                findings.cause(key, format!("ring takes {ring:.3} ms, SwitchML {ours:.3} ms"));
            }
        }
        findings.note(
            "Ours sends a slot again as soon as results of later packets overtake it, and after the timeout only where \
             nothing overtakes; the paper's worker has the timeout alone. Its libraries over TCP are not simulated: our \
             ring, with its own acknowledgements, stands for them.",
        );
        findings.figures.push(Figure {
            title: format!("Inflation of the aggregation time by loss, {} Gbit/s", self.setup.gbit),
            x: "packets lost on each link (%)".into(),
            y: "time over time without loss".into(),
            log_x: true,
            series: lines,
            marks: Vec::new(),
        });
        findings
    }

    fn cause(&self, point: &Point, base: f64) -> String {
        let (tat, again) = (mean(&point.tat), mean(&point.again));
        format!(
            "{:.3} ms instead of {:.3} ms; {again:.0} packets sent again, {:.2} timeouts' worth of time lost",
            1e3 * tat,
            1e3 * base,
            (tat - base) / (self.setup.rto_us as f64 * 1e-6)
        )
    }
}
