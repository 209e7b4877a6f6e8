//! Iterations of training jobs: the same setup under several protocols (lines) at several points, with every seed.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Table, Value};
use tributary_control::config::{OptionTable, texts};
use tributary_proto::aggregation::best_effort::Memory;
use tributary_proto::protocols;
use tributary_sim::config::{Bytes, Config, JobSection, overlay};
use tributary_sim::report::Report;

use super::compare::{Compare, Samples};
use crate::finding::{Figure, Series, mean};
use crate::{Context, Experiment, Finding, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    /// The common part of all runs, as a file for `tributary sim run`; tensors have the paper's length.
    pub setup: Table,
    /// By how many times tensors are shortened.
    #[serde(default = "one")]
    pub scale: u64,
    /// Bytes on a link around each vector, including a protocol's header.
    pub framing: Bytes,
    /// Blocks that fit into a switch's memory.
    pub aggregators: u64,
    /// Packets in flight on the longest path: BDP.
    pub path: u64,
    /// The name of the axis on which points differ.
    pub axis: String,
    /// The points.
    pub points: Vec<Point>,
    /// Options of a protocol in all lines that have it. A line's own options take precedence.
    #[serde(default)]
    pub options: BTreeMap<String, Table>,
    /// The lines of the figure.
    pub lines: Vec<Line>,
    /// The comparisons.
    #[serde(default)]
    pub compare: Vec<Compare>,
}

/// A protocol with its options.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// The keys of its jobs that differ from the setup.
    pub job: Table,
    /// Other keys of its runs that differ from the setup.
    #[serde(default)]
    pub setup: Table,
    /// Bytes around each vector, if they differ from those of all lines.
    #[serde(default)]
    pub framing: Option<Bytes>,
    /// Blocks that fit into a switch, if the number differs from other lines.
    #[serde(default)]
    pub aggregators: Option<u64>,
    /// AWD begins at its share of the threshold of marks, `eta (M + BDP) / N` (eq. 5), as if a job learned the share
    /// when it is admitted.
    #[serde(default)]
    pub admitted: bool,
    /// Memory is divided among jobs beforehand, and each slot takes two blocks (SwitchML): a job has no more slots than
    /// its share holds.
    #[serde(default)]
    pub divided: bool,
}

/// One point of the axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The value of the axis.
    pub x: f64,
    /// The name in findings; the value if left out.
    #[serde(default)]
    pub name: Option<String>,
    /// The keys of its runs that differ from the setup.
    #[serde(default)]
    pub setup: Table,
    /// The keys of its jobs that differ from the setup.
    #[serde(default)]
    pub job: Table,
    /// How many jobs there are, repeating those of the setup; each once if left out.
    #[serde(default)]
    pub jobs: Option<usize>,
    /// Blocks that fit into a switch's memory.
    #[serde(default)]
    pub aggregators: Option<u64>,
}

/// The operator's name for the blocks that fit into a switch.
const AGGREGATORS: &str = "aggregators";
/// The operator's name for the packets that the longest path holds.
const PATH: &str = "path_packets";

fn one() -> u64 {
    1
}

impl Point {
    /// The name in findings.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.x.to_string())
    }
}

impl Line {
    /// The name of its protocol.
    fn protocol(&self) -> Option<&str> {
        self.job.get("protocol")?.as_str()
    }
}

/// A job with these options.
fn with_options(options: impl IntoIterator<Item = (String, Value)>) -> Table {
    Table::from_iter([("options".to_string(), Value::Table(options.into_iter().collect()))])
}

/// One run.
struct Run<'a> {
    line: &'a Line,
    point: &'a Point,
    seed: u64,
}

impl Experiment for Lines {
    /// Findings `<line>-<point>-<what>`, over seeds: `ajct`, the mean over jobs of the mean time of their iterations,
    /// ms; `job0` and so on, the same of one job; `goodput` of all jobs together, Gbit/s; `use` and `core`, the mean
    /// use of all links and of links between switches, %; `network`, the share of blocks summed in the network, %;
    /// `jain`, how even the jobs' times are; `link0` and so on, the use of a sampled link in the first step. There is a
    /// finding for each comparison too.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        let labels = self.labels();
        self.compare.iter().try_for_each(|compare| compare.check(&names, &labels))?;
        let runs = self.runs(context.seeds);
        let measured = context.watch.all_announced(&runs, |run| self.measure(context, run))?;
        let mut samples = Samples::default();
        let mut findings = Findings::default();
        for (at, run) in runs.iter().enumerate().filter(|(_, run)| run.seed == 1) {
            let of_seeds = &measured[at..at + context.seeds as usize];
            let (line, label) = (&run.line.name, run.point.label());
            for what in of_seeds[0].keys() {
                let values: Vec<f64> = of_seeds.iter().filter_map(|seed| seed.get(what).copied()).collect();
                findings.value(format!("{line}-{label}-{what}"), Finding::over("seeds", &values));
                samples.put(line, &label, what, values);
            }
            findings.note(self.note(line, &label, &samples));
        }
        for compare in &self.compare {
            compare.report(&labels, &samples, &mut findings)?;
        }
        if self.scale > 1 {
            findings.note(format!("Tensors are {} times shorter than the paper's.", self.scale));
        }
        findings.figures.push(self.figure(&findings));
        Ok(findings)
    }

    fn run_count(&self, seeds: u64) -> usize {
        self.runs(seeds).len()
    }
}

impl Lines {
    fn labels(&self) -> Vec<String> {
        self.points.iter().map(Point::label).collect()
    }

    /// Line by line and point by point, with all seeds of a point in a row.
    fn runs(&self, seeds: u64) -> Vec<Run<'_>> {
        let pairs = self.lines.iter().flat_map(|line| self.points.iter().map(move |point| (line, point)));
        pairs.flat_map(|(line, point)| (1..=seeds).map(move |seed| Run { line, point, seed })).collect()
    }

    fn measure(&self, context: &Context<'_>, run: &Run<'_>) -> Result<BTreeMap<String, f64>, ReproduceError> {
        let what = format!("{} at {} {}, seed {}", run.line.name, self.axis, run.point.label(), run.seed);
        let config = self.config(run)?;
        let file = toml::to_string(&config).map_err(|error| ReproduceError::Bad(error.to_string()))?;
        context
            .memory
            .once(&format!("lines\n{file}"), || context.watch.simulate(&config, &what).map(|report| figures(&report)))
    }

    /// The run as a file for `tributary sim run`.
    fn config(&self, run: &Run<'_>) -> Result<Config, ReproduceError> {
        let bad = |why: String| ReproduceError::Bad(format!("{} at {}: {why}", run.line.name, run.point.label()));
        let mut table = self.setup.clone();
        overlay(&mut table, run.point.setup.clone());
        overlay(&mut table, run.line.setup.clone());
        table.insert("seed".into(), Value::Integer(run.seed as i64));
        let Some(Value::Array(given)) = table.remove("job") else { return Err(bad("the setup has no job".into())) };
        let count = run.point.jobs.unwrap_or(given.len());
        let memory = self.set_memory(run, &mut table).map_err(bad)?;
        let with_line = |job: &Value| {
            let mut job = job.as_table().cloned().unwrap_or_default();
            overlay(&mut job, run.point.job.clone());
            overlay(&mut job, self.job_of(run.line));
            if let Some(memory) = memory.filter(|_| run.line.admitted) {
                let ahead = memory.threshold(count) / count.max(1) as u64;
                overlay(&mut job, with_options([("initial_ahead".to_string(), Value::Integer(ahead as i64))]));
            }
            Value::Table(job)
        };
        let jobs: Vec<Value> = given.iter().cycle().take(count).map(with_line).collect();
        table.insert("job".into(), jobs.into());
        let mut config = Config::deserialize(table).map_err(|error| bad(error.message().to_string()))?;
        self.size(run, &mut config).map_err(bad)?;
        Ok(config)
    }

    /// Blocks that fit into a switch.
    fn aggregators(&self, run: &Run<'_>) -> u64 {
        run.line.aggregators.or(run.point.aggregators).unwrap_or(self.aggregators)
    }

    /// The keys of a line's jobs, with the options of its protocol.
    fn job_of(&self, line: &Line) -> Table {
        let options = line.protocol().and_then(|name| self.options.get(name));
        let mut job = options.map(|options| with_options(options.clone())).unwrap_or_default();
        overlay(&mut job, line.job.clone());
        job
    }

    /// Sets the memory that jobs share in switches, beside what the setup says about it; `None` if they share none.
    fn set_memory(&self, run: &Run<'_>, table: &mut Table) -> Result<Option<Memory>, String> {
        let shared = run.line.protocol().and_then(|name| Some((name, protocols::named(name)?.shared.as_ref()?)));
        let Some((name, shared)) = shared else { return Ok(None) };
        if !shared.options.specs.iter().any(|spec| spec.name == AGGREGATORS) {
            return Ok(None);
        }
        let memory = Table::from_iter([
            (AGGREGATORS.to_string(), Value::Integer(self.aggregators(run) as i64)),
            (PATH.to_string(), Value::Integer(self.path as i64)),
        ]);
        let of_protocol = Table::from_iter([(name.to_string(), Value::Table(memory))]);
        overlay(table, Table::from_iter([("switches".to_string(), Value::Table(of_protocol))]));
        let given = OptionTable::deserialize(table["switches"][name].clone()).map_err(|error| error.to_string())?;
        let options = shared.options.read(&texts(&given)).map_err(|error| error.to_string())?;
        Ok(Some(Memory::of(&options)))
    }

    /// Sets tensors, framing, and slots of divided memory.
    fn size(&self, run: &Run<'_>, config: &mut Config) -> Result<(), String> {
        let first: &JobSection = config.jobs.first().ok_or("the setup has no job")?;
        let protocol = first.protocol;
        let (framing, header) = (run.line.framing.unwrap_or(self.framing).0, protocol.header_len as u64);
        let overhead = framing.checked_sub(header);
        config.network.overhead = Bytes(
            overhead.ok_or_else(|| format!("{framing} bytes have no room for the {header} of {protocol}'s header"))?,
        );
        let share = self.aggregators(run) / config.jobs.len() as u64 / 2;
        for job in &mut config.jobs {
            job.tensor = Bytes((job.tensor.0 / self.scale.max(1)).next_multiple_of(4));
            if run.line.divided {
                let slots = job.slots.ok_or("divided memory bounds slots: name them")?;
                job.slots = Some(slots.min(share.try_into().unwrap_or(u16::MAX)).max(1));
            }
        }
        Ok(())
    }

    /// A note about one point of a line for readers.
    fn note(&self, line: &str, label: &str, samples: &Samples) -> String {
        let of = |what: &str| samples.get(line, label, what).map_or(f64::NAN, mean);
        let [ajct, goodput, used, core, network] = ["ajct", "goodput", "use", "core", "network"].map(of);
        let mut text = format!(
            "{line}, {} {label}: {ajct:.3} ms an iteration, {goodput:.2} Gbit/s; links {used:.1} % busy, {core:.1} % \
             between switches; {:.2} % of packets sent again",
            self.axis,
            of("again")
        );
        if !network.is_nan() {
            text += &format!("; {network:.1} % of blocks summed in switches");
        }
        text + "."
    }

    fn figure(&self, findings: &Findings) -> Figure {
        let line = |line: &Line| {
            let mut series = Series::new(&line.name, Vec::new());
            for point in &self.points {
                if let Some(bar) = findings.values.get(&format!("{}-{}-ajct", line.name, point.label())) {
                    series.points.push([point.x, bar.median]);
                    series.ranges.push([bar.low, bar.high]);
                }
            }
            series
        };
        Figure {
            title: "Mean time of an iteration".into(),
            x: self.axis.clone(),
            y: "ms".into(),
            log_x: false,
            series: self.lines.iter().map(line).collect(),
            marks: Vec::new(),
        }
    }
}

/// The figures of a run, by name.
fn figures(report: &Report) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let times: Vec<f64> = report.jobs.iter().filter_map(|job| Some(1e3 * job.mean_seconds?)).collect();
    let bits = |job: &tributary_sim::report::JobReport| Some(8e-9 * job.tensor_bytes as f64 / job.mean_seconds?);
    let (sent, again) =
        report.jobs.iter().fold((0, 0), |(sent, again), job| (sent + job.packets_sent, again + job.retransmissions));
    let inverse: Vec<f64> = times.iter().map(|time| 1.0 / time).collect();
    let squares: f64 = inverse.iter().map(|rate| rate * rate).sum();
    let uses = |core: bool| {
        let rows = report.link_rows.iter().filter(|row| !core || row.from_level.min(row.to_level) > 0);
        let uses: Vec<f64> = rows.map(|row| 100.0 * row.utilisation).collect();
        if uses.is_empty() { 0.0 } else { mean(&uses) }
    };
    let mut put = |name: &str, value: f64| {
        found.insert(name.to_string(), value);
    };
    put("ajct", mean(&times));
    put("goodput", report.jobs.iter().filter_map(bits).sum());
    put("use", uses(false));
    put("core", uses(true));
    put("again", 100.0 * again as f64 / sent.max(1) as f64);
    put("jain", inverse.iter().sum::<f64>().powi(2) / (inverse.len() as f64 * squares));
    let shares: Vec<f64> = report.jobs.iter().filter_map(|job| Some(100.0 * job.in_network?)).collect();
    if !shares.is_empty() {
        put("network", mean(&shares));
    }
    for (job, time) in times.iter().enumerate() {
        put(&format!("job{job}"), *time);
    }
    if let Some(samples) = &report.samples {
        // In the direction from the end that the file names first.
        let there = samples.link_samples().take(samples.links.len()).filter(|sample| sample.link.0 % 2 == 0);
        there.enumerate().for_each(|(at, sample)| put(&format!("link{at}"), 100.0 * sample.utilisation));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        axis = "jobs"
        framing = "62 B"
        aggregators = 1000
        path = 200
        points = [{ x = 2, jobs = 2 }]
        options = { pa-atp = { levels = 1, progress = "off" } }
        lines = [
            { name = "limited", job = { protocol = "pa-atp", options = { progress = "relative" } }, admitted = true },
            { name = "straw", job = { protocol = "pa-atp", options = { limit = false } } },
        ]
        [setup]
        job = [{ hosts = 3, tensor = "1 MB" }]
        network = { leaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 4 } }
    "#;

    /// The options of the first job of each line.
    fn options(change: impl Fn(&mut Lines)) -> [BTreeMap<String, String>; 2] {
        let mut lines: Lines = toml::from_str(FILE).unwrap();
        change(&mut lines);
        let of = |run: &Run<'_>| texts(&lines.config(run).unwrap().jobs[0].options);
        let runs = lines.runs(1);
        [of(&runs[0]), of(&runs[1])]
    }

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn a_line_has_the_options_of_its_protocol_unless_it_has_its_own() {
        let [limited, straw] = options(|_| {});
        // eta (M + BDP) / N: 998 of 1,200 by eq. 9, for two jobs.
        assert_eq!(limited, given(&[("levels", "1"), ("progress", "relative"), ("initial_ahead", "499")]));
        assert_eq!(straw, given(&[("levels", "1"), ("progress", "off"), ("limit", "false")]));
    }

    #[test]
    fn awd_begins_at_its_share_of_the_eta_that_switches_have() {
        let [limited, _] = options(|lines| {
            let eta: Table = toml::from_str("[switches.pa-atp]\neta_permille = 500").unwrap();
            overlay(&mut lines.setup, eta);
        });
        assert_eq!(limited["initial_ahead"], "300");
    }
}
