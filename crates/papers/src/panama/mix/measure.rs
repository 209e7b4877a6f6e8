//! One run of figure 8: its network, and the figures of its report.

use serde::{Deserialize, Serialize};
use tributary_sim::config::{Bytes, Config, Share, TrainingSection};
use tributary_sim::report::{FlowRow, Report, percentile};

use super::{Mix, Run, What};
use crate::{Context, ReproduceError};

/// The traffic that is in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// All of it.
    All,
    /// Only short flows.
    Short,
    /// Only long flows.
    Long,
    /// Only jobs.
    Jobs,
}

impl Traffic {
    /// The traffic of each run of a line.
    pub fn of(separate: bool) -> &'static [Traffic] {
        if separate { &[Traffic::Short, Traffic::Long, Traffic::Jobs] } else { &[Traffic::All] }
    }
}

/// The measurements of a run, of flows and jobs that began in the judged period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Completion times of short flows, ms; `None` if there were none.
    p99_ms: Option<f64>,
    mean_ms: Option<f64>,
    /// Mean throughput of long flows, Gbit/s.
    long_gbps: Option<f64>,
    /// Mean training time, ms.
    training_ms: Option<f64>,
    /// How many short flows, long flows and jobs there were.
    pub short: u64,
    pub long: u64,
    pub jobs: u64,
    /// Of the whole run: marks and pauses.
    pub marks: u64,
    pub pauses: u64,
}

impl Measured {
    /// One of the figures.
    pub fn figure(&self, what: What) -> Option<f64> {
        match what {
            What::P99 => self.p99_ms,
            What::Mean => self.mean_ms,
            What::Long => self.long_gbps,
            What::Training => self.training_ms,
        }
    }

    fn of(report: &Report, long: u64, judged: std::ops::Range<f64>) -> Measured {
        let flows = report.flow_rows.iter().filter(|flow| judged.contains(&flow.start));
        let (long_ones, short_ones): (Vec<&FlowRow>, Vec<&FlowRow>) = flows.partition(|flow| flow.bytes >= long);
        let mut short: Vec<f64> = short_ones.iter().map(|flow| 1e3 * flow.seconds).collect();
        short.sort_by(f64::total_cmp);
        let rates: Vec<f64> = long_ones.iter().map(|flow| 8e-9 * flow.bytes as f64 / flow.seconds).collect();
        let jobs = report.jobs.iter().filter_map(|job| Some((job, job.lifetime.as_ref()?)));
        let jobs = jobs.filter(|(_, stay)| judged.contains(&stay.arrived));
        let trainings: Vec<f64> = jobs.filter_map(|(job, stay)| Some(1e3 * job.training_seconds(stay)?)).collect();
        let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        Measured {
            p99_ms: (!short.is_empty()).then(|| percentile(&short, 0.99)),
            mean_ms: mean(&short),
            long_gbps: mean(&rates),
            training_ms: mean(&trainings),
            short: short.len() as u64,
            long: rates.len() as u64,
            jobs: trainings.len() as u64,
            marks: report.link_rows.iter().map(|row| row.counters.marks).sum(),
            pauses: report.link_rows.iter().map(|row| row.counters.pauses).sum(),
        }
    }
}

impl Mix {
    /// Makes a run, or takes its results if another line, load or figure has made it.
    pub(super) fn measure(&self, context: &Context<'_>, run: &Run<'_>) -> Result<Measured, ReproduceError> {
        let config = self.config(run)?;
        let file = toml::to_string(&config).map_err(|error| ReproduceError::Bad(error.to_string()))?;
        let long = self.long.0.div_ceil(self.scale.into());
        let until = self.training()?.until.0.as_secs_f64();
        let judged = self.judged[0].0 * until..self.judged[1].0 * until;
        let question = format!("mix, long from {long}, {judged:?}\n{file}");
        context.memory.once(&question, || {
            let what = format!("{} at {} %, seed {}", run.line.name, run.load, run.seed);
            context.watch.simulate(&config, &what).map(|report| Measured::of(&report, long, judged))
        })
    }

    fn training(&self) -> Result<&TrainingSection, ReproduceError> {
        match &self.setup.trainings[..] {
            [training] => Ok(training),
            _ => Err(ReproduceError::Bad("the setup has one training".into())),
        }
    }

    /// The run as a file for `tributary sim run`.
    fn config(&self, run: &Run<'_>) -> Result<Config, ReproduceError> {
        let training = self.training()?;
        let mut config = Config { seed: run.seed, ..self.setup.clone() };
        let jobs = Share(((run.load / 100.0 - self.flow_load.0) * 1e6).round() / 1e6);
        if jobs.0 < 0.0 {
            return Err(ReproduceError::Bad(format!("flows alone send more than {} %", run.load)));
        }
        let line = run.line;
        let own = line.protocol.is_none();
        config.trainings = vec![TrainingSection {
            protocol: self.protocol(line)?,
            options: if line.options.is_empty() && own { training.options.clone() } else { line.options.clone() },
            trees: line.trees.or(training.trees.filter(|_| own)),
            slots: line.slots.or(training.slots.filter(|_| own)),
            scale: self.scale,
            load: jobs,
            ..training.clone()
        }];
        let kinds = config.traffic.len().max(1) as f64;
        for traffic in &mut config.traffic {
            traffic.scale = self.scale;
            traffic.load = Share(self.flow_load.0 / kinds);
            traffic.between = match run.carries {
                Traffic::Short => Some([Bytes(0), self.long]),
                Traffic::Long => Some([self.long, Bytes(u64::MAX >> 1)]),
                Traffic::All | Traffic::Jobs => None,
            };
        }
        match run.carries {
            Traffic::All if jobs.0 == 0.0 => config.trainings.clear(),
            Traffic::All => {}
            Traffic::Jobs => config.traffic.clear(),
            Traffic::Short | Traffic::Long => config.trainings.clear(),
        }
        Ok(config)
    }
}
