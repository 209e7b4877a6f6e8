//! The time of a round over bandwidth: all workers give their gradients, and each has the sum.

use serde::Deserialize;
use tributary_control::config::OptionTable;
use tributary_sim::config::{Config, DataRate};
use tributary_sim::report::Report;

use crate::finding::{Figure, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// The network and one job.
    pub setup: Config,
    /// The rates of all links, for each point.
    pub rates: Vec<DataRate>,
    /// The lines of the figure; the others are compared with the first.
    pub lines: Vec<Line>,
}

/// A way to sum.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// The job's options.
    #[serde(default)]
    pub options: OptionTable,
}

/// The measurements of a run.
struct Seen {
    seconds: f64,
    /// Bytes on the links of hosts, framing included.
    up: f64,
    down: f64,
}

impl Experiment for Round {
    /// For each rate and line `<line>-<gbit>` (milliseconds); for each line but the first `<line>-<gbit>-times`, the first
    /// line's time over its own; and at the last rate `<line>-up` and `<line>-down`, the first line's bytes on the way from
    /// and to hosts over its own.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let points: Vec<(DataRate, &Line)> =
            self.rates.iter().flat_map(|&rate| self.lines.iter().map(move |line| (rate, line))).collect();
        let seen = context.watch.all(&points, |&(rate, line)| self.measure(context, rate, line))?;
        let mut findings = Findings::default();
        let mut series: Vec<Vec<[f64; 2]>> = vec![Vec::new(); self.lines.len()];
        for (rate, seen) in self.rates.iter().zip(seen.chunks(self.lines.len())) {
            let gbit = rate.0.0 as f64 / 1e9;
            for ((line, own), points) in self.lines.iter().zip(seen).zip(&mut series) {
                let (key, ms) = (format!("{}-{gbit}", line.name), 1e3 * own.seconds);
                points.push([gbit, ms]);
                findings.cause(format!("{key}-times"), format!("{ms:.3} ms, {:.3} ms", 1e3 * seen[0].seconds));
                findings.value(format!("{key}-times"), seen[0].seconds / own.seconds);
                findings.value(key, ms);
                for (way, bytes, first) in [("up", own.up, seen[0].up), ("down", own.down, seen[0].down)] {
                    let key = format!("{}-{way}", line.name);
                    findings.cause(&*key, format!("{bytes} bytes on links, {first} of {}", self.lines[0].name));
                    findings.value(key, first / bytes);
                }
            }
        }
        findings.figures.push(Figure {
            title: "Time of a round by bandwidth".into(),
            x: "link rate (Gbit/s)".into(),
            y: "ms".into(),
            log_x: true,
            series: self.lines.iter().zip(series).map(|(line, points)| Series::new(&line.name, points)).collect(),
            marks: Vec::new(),
        });
        Ok(findings)
    }
}

impl Round {
    fn measure(&self, context: &Context<'_>, rate: DataRate, line: &Line) -> Result<Seen, ReproduceError> {
        let mut config = self.setup.clone();
        config.network.rate = rate;
        let [job] = &mut config.jobs[..] else {
            return Err(ReproduceError::Bad("a round is one job's".into()));
        };
        job.options = line.options.clone();
        let what = format!("{} at {rate}", line.name);
        let report = context.watch.simulate(&config, &what)?;
        let seconds = report.jobs[0].seconds.ok_or(ReproduceError::Bad(format!("{what}: no round ended")))?;
        let [up, down] = [true, false].map(|is_up| bytes_of_hosts(&report, is_up));
        Ok(Seen { seconds, up, down })
    }
}

/// Bytes on the links from hosts, or to them.
fn bytes_of_hosts(report: &Report, is_up: bool) -> f64 {
    let rows = report.link_rows.iter().filter(|row| if is_up { row.from_level == 0 } else { row.to_level == 0 });
    rows.map(|row| row.counters.bytes as f64).sum()
}
