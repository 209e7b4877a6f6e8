//! A report as figures: collectives, flows, links and queues, and the samples over time.

use serde::{Deserialize, Serialize};

use super::flows::{self, flows_under};
use super::{CoresSample, LinkSample, Report, Samples, steps};
use crate::cores::steps::Kind;
use crate::engine::Occupancy;

/// The points of a line that represents any number of values.
const MAX_QUANTILES: usize = 200;

impl Report {
    /// The figures for which there is data.
    pub fn figures(&self) -> Vec<Figure> {
        let figures = [self.collective_figure(), self.flow_figure(), self.utilisation_figure(), self.queue_figure()];
        let figures = figures.into_iter().chain(self.slowdown_figures());
        let steps = steps::figures(&self.steps, &self.span_rows);
        steps.into_iter().chain(figures).chain(self.timelines()).filter(|figure| !figure.series.is_empty()).collect()
    }

    fn collective_figure(&self) -> Figure {
        let line = |job: &super::JobReport| {
            Series::new(
                format!("{} ({})", job.name, job.protocol),
                (job.iterations.iter().enumerate())
                    .filter_map(|(number, row)| Some((number, row.end? - row.start)))
                    .map(|(number, seconds)| [number as f64, job.tensor_bytes as f64 * 8e-9 / seconds])
                    .collect(),
            )
        };
        Figure {
            title: "Goodput of each collective".into(),
            x: "collective".into(),
            y: "Gbit/s".into(),
            log_x: false,
            series: self
                .jobs
                .iter()
                .filter(|job| job.goodput_gbps.is_some())
                .map(line)
                .filter(|line| !line.points.is_empty())
                .collect(),
            marks: Vec::new(),
        }
    }

    /// The share of flows that were complete after a time.
    fn flow_figure(&self) -> Figure {
        let line = |kind: &str| {
            let seconds = self.flow_rows.iter().filter(|row| row.kind == kind).map(|row| row.seconds).collect();
            let points =
                quantiles(seconds).into_iter().map(|[share, seconds]| [1e6 * seconds, 100.0 * share]).collect();
            Series::new(if kind == "message" { "messages".into() } else { flows_under(kind) }, points)
        };
        let kinds = ["message"].into_iter().chain(self.kinds_of_flows());
        Figure {
            title: "Completion times of messages and flows".into(),
            x: "us".into(),
            y: "complete, %".into(),
            log_x: true,
            series: kinds.map(line).filter(|line| !line.points.is_empty()).collect(),
            marks: Vec::new(),
        }
    }

    /// The kinds of flows with a slowdown, in the order of their first ones.
    fn kinds_of_flows(&self) -> Vec<&'static str> {
        let mut kinds = Vec::new();
        for row in self.flow_rows.iter().filter(|row| row.slowdown.is_some()) {
            if !kinds.contains(&row.kind) {
                kinds.push(row.kind);
            }
        }
        kinds
    }

    /// How many times longer flows take than alone: by their size, and as a distribution.
    fn slowdown_figures(&self) -> [Figure; 2] {
        let flows = |kind: &str| -> Vec<(u64, f64)> {
            let rows = self.flow_rows.iter().filter(|row| row.kind == kind);
            rows.filter_map(|row| Some((row.bytes, row.slowdown?))).collect()
        };
        let shares = [("median", 0.5), ("p95", 0.95), ("p99", 0.99)];
        let lines = |kind: &'static str| {
            shares.map(|(name, share)| {
                Series::new(format!("{}, {name}", flows_under(kind)), flows::slowdowns_by_size(flows(kind), share))
            })
        };
        let distribution = |kind: &'static str| {
            let slowdowns = flows(kind).into_iter().map(|flow| flow.1).collect();
            let points = quantiles(slowdowns).into_iter().map(|[share, slowdown]| [slowdown, 100.0 * share]).collect();
            Series::new(flows_under(kind), points)
        };
        let kinds = self.kinds_of_flows();
        let figure = |title: &str, x: &str, y: &str, series| {
            let (title, x, y) = (title.into(), x.into(), y.into());
            Figure { title, x, y, log_x: true, series, marks: Vec::new() }
        };
        let by_size = kinds.iter().flat_map(|kind| lines(kind)).collect();
        let of_all = kinds.iter().map(|kind| distribution(kind)).collect();
        [
            figure("Slowdown of flows by size", "bytes", "time over that alone", by_size),
            figure("Slowdowns of flows", "time over that alone", "complete, %", of_all),
        ]
    }

    fn utilisation_figure(&self) -> Figure {
        let series = self.by_group(|row| 100.0 * row.utilisation);
        let title = "Share of the run that links spent sending".into();
        let (x, y) = ("links, from the least used, %".into(), "used, %".into());
        Figure { title, x, y, log_x: false, series, marks: Vec::new() }
    }

    fn queue_figure(&self) -> Figure {
        let series = self.by_group(|row| row.counters.max_queue_bytes as f64 / 1024.0);
        let title = "Most that ever waited in output queues".into();
        let (x, y) = ("queues, from the emptiest, %".into(), "KiB".into());
        Figure { title, x, y, log_x: false, series, marks: Vec::new() }
    }

    /// For each group of links, the value that a share of them does not exceed.
    fn by_group(&self, value: impl Fn(&super::LinkRow) -> f64) -> Vec<Series> {
        let line = |name: &String| {
            let values = self.link_rows.iter().filter(|row| row.group() == *name).map(&value).collect();
            let points = quantiles(values).into_iter().map(|[share, value]| [100.0 * share, value]).collect();
            Series::new(name, points)
        };
        self.links.iter().map(|group| line(&group.name)).collect()
    }
}

/// Pairs of a share and the value that this share of all does not exceed, from the least value to the greatest.
fn quantiles(mut values: Vec<f64>) -> Vec<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let share = |index: usize| (index + 1) as f64 / values.len() as f64;
    let step = values.len().div_ceil(MAX_QUANTILES).max(1);
    let last = values.len().checked_sub(1);
    let indices = (0..values.len()).step_by(step).chain(last.filter(|last| !last.is_multiple_of(step)));
    indices.map(|index| [share(index), values[index]]).collect()
}

/// The most points of a line: several steps become one point if there are more.
const MAX_POINTS: usize = 256;

/// How the values of several steps become one.
#[derive(Clone, Copy)]
enum Merge {
    Max,
    Mean,
}

impl Report {
    /// The figures over time; none without samples.
    fn timelines(&self) -> Vec<Figure> {
        let Some(samples) = self.samples.as_ref().filter(|samples| samples.steps > 0) else { return Vec::new() };
        let scale = Scale::of(samples);
        let figure = |title: &str, y: &str, series| {
            let x = format!("simulated time, {}", scale.unit);
            Figure { title: title.into(), x, y: y.into(), log_x: false, series, marks: self.marks(&scale) }
        };
        let queues = self.lines(samples, &scale, Merge::Max, |sample| sample.queued as f64 / 1024.0);
        let links = self.lines(samples, &scale, Merge::Mean, |sample| 100.0 * sample.utilisation);
        let mut figures = vec![
            figure("Fullest queue of each group of links over time", "KiB", queues),
            figure("Mean use of links over time", "used, %", links),
        ];
        let memory = of_switches(samples, &scale, "fullest switch", |occupancy| occupancy.bytes as f64 / 1024.0);
        if memory.points.iter().any(|point| point[1] > 0.0) {
            figures.push(figure("Switch memory in use over time", "KiB", vec![memory]));
        }
        let waiting = of_switches(samples, &scale, "most in one switch", |occupancy| occupancy.waiting as f64);
        let input = of_switches(samples, &scale, "packets", |occupancy| occupancy.input_bytes as f64 / 1024.0);
        let working = of_switches(samples, &scale, "blocks", |occupancy| occupancy.working_bytes as f64 / 1024.0);
        if [&input, &working].into_iter().flat_map(|line| &line.points).any(|point| point[1] > 0.0) {
            figures.push(figure("Packets that wait for cores over time", "packets", vec![waiting]));
            figures.push(figure("Memory of the fullest switch's processor over time", "KiB", vec![input, working]));
            let [handled, cores] = of_cores(samples, &scale);
            figures.push(figure("Packets that cores handle over time", "Gbit/s", handled));
            figures.push(figure("What cores do over time", "cores of all switches", cores));
        }
        figures
    }

    /// The file's faults that begin during the samples.
    fn marks(&self, scale: &Scale) -> Vec<Mark> {
        let last = scale.width * scale.bins as f64;
        let mark = |fault: &super::FaultReport| Mark {
            name: fault.what.clone(),
            from: fault.at * scale.factor,
            to: fault.until.map(|until| until * scale.factor).filter(|&to| to < last),
        };
        self.faults.iter().map(mark).filter(|mark| mark.from < last).collect()
    }

    /// A line for each group of links.
    fn lines(&self, samples: &Samples, scale: &Scale, merge: Merge, value: impl Fn(&LinkSample) -> f64) -> Vec<Series> {
        let names: Vec<String> = self.link_rows.iter().map(super::LinkRow::group).collect();
        let group = |sample: &LinkSample| self.links.iter().position(|group| group.name == names[sample.link.index()]);
        let group_of: Vec<Option<usize>> =
            samples.link_samples().take(samples.links.len()).map(|s| group(&s)).collect();
        let mut points = vec![vec![Bin::default(); scale.bins]; self.links.len()];
        for (index, sample) in samples.link_samples().enumerate() {
            let (step, column) = (index / samples.links.len(), index % samples.links.len());
            if let Some(group) = group_of[column] {
                points[group][step / scale.steps].add(value(&sample));
            }
        }
        let named = self.links.iter().zip(points);
        let lines = named.map(|(group, bins)| Series::new(&group.name, scale.points(&bins, merge)));
        lines.filter(|line| !line.points.is_empty()).collect()
    }
}

/// The values of the switch that has the most of something.
fn of_switches(samples: &Samples, scale: &Scale, name: &str, value: impl Fn(&Occupancy) -> f64) -> Series {
    let mut bins = vec![Bin::default(); scale.bins];
    for (index, (.., occupancy)) in samples.switch_samples().enumerate() {
        bins[index / samples.switch_count / scale.steps].add(value(&occupancy));
    }
    Series::new(name, scale.points(&bins, Merge::Max))
}

/// The packets that all switches' cores handle, and how many cores are in each kind of step.
fn of_cores(samples: &Samples, scale: &Scale) -> [Vec<Series>; 2] {
    let line = |name: &str, value: &dyn Fn(&CoresSample) -> f64| {
        let all: Vec<f64> = samples.cores_samples().map(|sample| value(&sample)).collect();
        let mut bins = vec![Bin::default(); scale.bins];
        for (step, switches) in all.chunks(samples.switch_count).enumerate() {
            bins[step / scale.steps].add(switches.iter().sum());
        }
        Series::new(name, scale.points(&bins, Merge::Mean))
    };
    let handled = line("all switches", &|sample| sample.handled_gbps);
    let kinds = Kind::ALL.into_iter().enumerate();
    let kinds = kinds.map(|(index, kind)| line(kind.name(), &|sample| sample.in_step[index]));
    let waiting = line("waiting for locks", &|sample| sample.waiting_for_locks);
    let happens = |line: &Series| line.points.iter().any(|point| point[1] > 0.0);
    [vec![handled], kinds.chain([waiting]).filter(happens).collect()]
}

/// Values of some steps.
#[derive(Clone, Copy, Default)]
struct Bin {
    sum: f64,
    greatest: f64,
    count: usize,
}

impl Bin {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.greatest = self.greatest.max(value);
        self.count += 1;
    }

    fn value(&self, merge: Merge) -> f64 {
        match merge {
            Merge::Max => self.greatest,
            Merge::Mean => self.sum / self.count as f64,
        }
    }
}

/// How steps of time become points.
struct Scale {
    unit: &'static str,
    /// How many of the unit make a second.
    factor: f64,
    /// How many steps make a point.
    steps: usize,
    /// The time of these steps, in the unit.
    width: f64,
    /// How many points there are.
    bins: usize,
}

impl Scale {
    fn of(samples: &Samples) -> Scale {
        let steps = samples.steps.div_ceil(MAX_POINTS);
        let seconds = samples.every.as_secs_f64();
        let (unit, factor) = match seconds * samples.steps as f64 {
            length if length < 2e-3 => ("us", 1e6),
            length if length < 2.0 => ("ms", 1e3),
            _ => ("s", 1.0),
        };
        Scale { unit, factor, steps, width: seconds * factor * steps as f64, bins: samples.steps.div_ceil(steps) }
    }

    fn points(&self, bins: &[Bin], merge: Merge) -> Vec<[f64; 2]> {
        let filled = bins.iter().enumerate().filter(|(_, bin)| bin.count > 0);
        filled.map(|(index, bin)| [(index + 1) as f64 * self.width, bin.value(merge)]).collect()
    }
}

// A picture's data: lines over one pair of axes. `python/tributary/plots.py` draws it.

/// One line of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, `[x, y]`.
    pub points: Vec<[f64; 2]>,
    /// The least and the greatest y of each point over seeds; empty with one seed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<[f64; 2]>,
}

impl Series {
    /// A line without ranges.
    pub fn new(name: impl Into<String>, points: Vec<[f64; 2]>) -> Series {
        Series { name: name.into(), points, ranges: Vec::new() }
    }
}

/// A period on the x axis in which something happened, such as a fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Its name in the legend.
    pub name: String,
    /// Where it begins.
    pub from: f64,
    /// Where it ends; `None` if it extends to the right edge.
    pub to: Option<f64>,
}

/// A picture's data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The title.
    pub title: String,
    /// The name and unit of the x axis.
    pub x: String,
    /// The name and unit of the y axis.
    pub y: String,
    /// True if the x axis is logarithmic.
    pub log_x: bool,
    /// The lines.
    pub series: Vec<Series>,
    /// The periods to be marked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_many_values_are_thinned_and_end_with_the_greatest() {
        assert_eq!(quantiles(vec![]), Vec::<[f64; 2]>::new());
        assert_eq!(quantiles(vec![3.0, 1.0]), [[0.5, 1.0], [1.0, 3.0]]);
        let many = quantiles((0..1_001).map(f64::from).collect());
        assert!(many.len() <= MAX_QUANTILES + 1);
        assert_eq!((many[0][1], many[many.len() - 1]), (0.0, [1.0, 1000.0]));
    }
}
