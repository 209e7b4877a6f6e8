//! What two tenants got of a switch: a line for each way and job.

use serde::Serialize;

use super::{Plan, SLOWER};
use crate::cluster::WorkerReport;
use crate::commands::lab::bench::line::median;
use crate::commands::lab::bench::machine::Machine;
use crate::output::Table;

/// The blocks for which a job had memory at each observation.
#[derive(Clone, Debug, Default)]
pub struct Memory(Vec<f64>);

impl Memory {
    /// Adds an observation.
    pub fn extend(&mut self, blocks: Option<f64>) {
        self.0.extend(blocks);
    }

    fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    fn most(&self) -> Option<f64> {
        self.0.iter().copied().reduce(f64::max)
    }
}

/// One job in one run of one way.
#[derive(Clone, Debug)]
pub struct Run {
    way: String,
    job: &'static str,
    /// Median time of a collective at the slowest worker.
    seconds: f64,
    in_network: f64,
    retransmissions: u64,
    blocks: Memory,
    a_outlasts_b: bool,
}

impl Run {
    /// A run, from the reports of its workers and the observations of the switch.
    pub fn new(
        way: &str,
        job: &'static str,
        workers: &[WorkerReport],
        seconds: f64,
        blocks: Memory,
        a_outlasts_b: bool,
    ) -> Run {
        let in_network = workers.iter().map(|worker| worker.in_network).sum::<f64>() / workers.len().max(1) as f64;
        let retransmissions = workers.iter().map(|worker| worker.retransmissions).sum();
        Run { way: way.to_owned(), job, seconds, in_network, retransmissions, blocks, a_outlasts_b }
    }
}

/// The medians of a job's runs under one way.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// How the memory is shared.
    pub way: String,
    /// `A`, which has a rank behind the slow link, or `B`.
    pub job: &'static str,
    /// Bits of tensor over the median completion time, in 10^9.
    pub goodput_gbps: f64,
    /// Median completion time.
    pub iteration_ms: f64,
    /// Fraction of the blocks that the switch summed.
    pub in_network: f64,
    /// Blocks for which it had memory while both jobs ran, on average over all observations; `None` if none saw both jobs.
    pub blocks_mean: Option<f64>,
    /// The most blocks of any observation.
    pub blocks_most: Option<f64>,
    /// Packets sent again, of all ranks.
    pub retransmissions: u64,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The rate of every link except that of A's rank 0, which has a quarter.
    pub rate_gbps: f64,
    /// Elements of float32 in each tensor.
    pub elements: usize,
    /// Collectives of B in one run.
    pub iters: u32,
    /// Runs of each way.
    pub repetitions: u32,
    /// Median time of a sum of 1 KiB on idle links.
    pub round_trip_us: f64,
    /// Full packets that a path holds in that time.
    pub path_packets: u32,
    /// Blocks that the switch has room for.
    pub memory_blocks: u32,
    /// A line for each way and job.
    pub lines: Vec<Line>,
    /// Notes for readers of the figures.
    pub notes: Vec<String>,
    /// Both jobs of each run, until the report makes lines of them.
    #[serde(skip)]
    pub runs: Vec<[Run; 2]>,
}

impl Report {
    /// A report without lines.
    pub fn new(machine: Machine, plan: &Plan, memory_blocks: u32, path_packets: u32, round_trip_us: f64) -> Report {
        Report {
            machine,
            rate_gbps: plan.rate_gbps,
            elements: plan.elements,
            iters: plan.iters,
            repetitions: plan.repetitions,
            round_trip_us,
            path_packets,
            memory_blocks,
            lines: Vec::new(),
            notes: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Makes lines of the runs.
    pub fn summarise(&mut self) {
        let runs: Vec<&Run> = self.runs.iter().flatten().collect();
        let mut order: Vec<(&str, &'static str)> = Vec::new();
        for run in &runs {
            if !order.contains(&(&run.way, run.job)) {
                order.push((&run.way, run.job));
            }
        }
        let bits = self.elements as f64 * 32.0;
        let line = |&(way, job): &(&str, &'static str)| {
            let own: Vec<&&Run> = runs.iter().filter(|run| run.way == way && run.job == job).collect();
            let of = |figure: &dyn Fn(&Run) -> f64| median(own.iter().map(|run| figure(run)).collect());
            let blocks = Memory(own.iter().flat_map(|run| run.blocks.0.iter().copied()).collect());
            let seconds = of(&|run| run.seconds)?;
            Some(Line {
                way: way.to_owned(),
                job,
                goodput_gbps: bits / seconds / 1e9,
                iteration_ms: seconds * 1e3,
                in_network: of(&|run| run.in_network)?,
                blocks_mean: blocks.mean(),
                blocks_most: blocks.most(),
                retransmissions: of(&|run| run.retransmissions as f64)? as u64,
            })
        };
        self.lines = order.iter().filter_map(line).collect();
        self.notes.extend(early(&runs, self.repetitions));
    }

    /// The table for people.
    pub fn render(&self) -> String {
        let (rate, slow) = (self.rate_gbps, self.rate_gbps / SLOWER);
        let mut text = format!(
            "two jobs of 4 ranks on one switch with links of {rate} Gbit/s; that of A's rank 0 has {slow} Gbit/s\n\
             {} elements ({:.1} MB of float32), median of {} x {} collectives of B, which begins while A runs\n\
             the switch holds {} blocks; a path holds {} packets ({:.0} us)\n\
             {}\n\n",
            self.elements,
            self.elements as f64 * 4.0 / 1e6,
            self.repetitions,
            self.iters,
            self.memory_blocks,
            self.path_packets,
            self.round_trip_us,
            self.machine,
        );
        text += &self.table().render();
        for note in &self.notes {
            text += &format!("\n\n{note}");
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "way",
            "job",
            "Gbit/s",
            "iteration ms",
            "in network %",
            "blocks mean",
            "blocks most",
            "sent again",
        ]);
        let or_dash = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.1}"));
        for line in &self.lines {
            table.row([
                line.way.clone(),
                line.job.to_owned(),
                format!("{:.3}", line.goodput_gbps),
                format!("{:.2}", line.iteration_ms),
                format!("{:.1}", line.in_network * 100.0),
                or_dash(line.blocks_mean),
                or_dash(line.blocks_most),
                line.retransmissions.to_string(),
            ]);
        }
        table
    }
}

/// The ways under which B's last collectives had the switch to themselves.
fn early(runs: &[&Run], repetitions: u32) -> Vec<String> {
    let early = || runs.iter().filter(|run| run.job == "B" && !run.a_outlasts_b).map(|run| &*run.way);
    let mut ways: Vec<&str> = Vec::new();
    for way in early() {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let count = |way: &str| early().filter(|other| *other == way).count();
    ways.iter()
        .map(|way| format!("Under {way} job A ended before B did, in {} of {repetitions} runs.", count(way)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(way: &str, job: &'static str, seconds: f64, blocks: &[f64]) -> Run {
        let blocks = Memory(blocks.to_vec());
        Run {
            way: way.to_owned(),
            job,
            seconds,
            in_network: 1.0,
            retransmissions: 0,
            blocks,
            a_outlasts_b: way == "that",
        }
    }

    #[test]
    fn lines_are_medians_of_runs_and_means_of_samples() {
        let plan = Plan { rate_gbps: 1.0, elements: 1_000_000, iters: 1, repetitions: 2, aggregators: None, mtu: 1500 };
        let mut report = Report::new(Machine::here(), &plan, 32, 20, 200.0);
        report.runs = vec![
            [run("this", "A", 0.128, &[4.0, 8.0]), run("this", "B", 0.032, &[])],
            [run("that", "A", 0.064, &[]), run("that", "B", 0.032, &[])],
            [run("this", "A", 0.128, &[12.0]), run("this", "B", 0.064, &[])],
        ];
        report.summarise();
        let seen: Vec<_> = report.lines.iter().map(|line| (&*line.way, line.job, line.goodput_gbps)).collect();
        let expected = [("this", "A", 0.25), ("this", "B", 2.0 / 3.0), ("that", "A", 0.5), ("that", "B", 1.0)];
        for ((way, job, gbps), expected) in seen.iter().zip(expected) {
            assert_eq!((*way, *job), (expected.0, expected.1));
            assert!((gbps - expected.2).abs() < 1e-9, "{way} {job}: {gbps}");
        }
        assert_eq!((report.lines[0].blocks_mean, report.lines[0].blocks_most), (Some(8.0), Some(12.0)));
        assert_eq!(report.lines[1].blocks_mean, None);
        assert_eq!(report.notes, ["Under this job A ended before B did, in 2 of 2 runs."]);
    }
}
