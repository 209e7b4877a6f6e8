//! What a plan found: a table, and a recommendation with its reason.

use serde::Serialize;
use serde_json::{Value, json};
use tributary_sim::report::{Figure, Report, Series};

use super::calibrate::HostCosts;
use super::experiment::{Experiment, StepShape, Way};
use crate::output::Table;

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The protocol, or another name of who sums.
    pub protocol: &'static str,
    /// True if switches sum.
    pub in_network: bool,
    /// The step, in seconds.
    pub step_seconds: Option<f64>,
    /// Its exposed communication.
    pub exposed_seconds: Option<f64>,
    /// Of collectives while any is under way.
    pub goodput_gbps: Option<f64>,
    /// Of the fullest switch.
    pub switch_memory_bytes: usize,
    /// Packets that links lost.
    pub packets_lost: u64,
    /// Packets that hosts sent again.
    pub packets_again: u64,
    /// What takes another way than the protocol's.
    pub notes: Vec<String>,
    /// Why the run failed, which leaves the times out.
    pub failure: Option<String>,
}

impl Row {
    /// The line of a run.
    pub fn new(way: Way, report: &Report, scale: u64) -> Row {
        let failure = report.failure();
        let step = report.steps.first().filter(|_| failure.is_none());
        let full = |seconds: f64| seconds * scale as f64;
        // Where no protocol sums, everything takes the host path as it should.
        let steps = report.steps.iter().filter(|_| way != Way::Gloo);
        let lost = report.links.iter().flat_map(|links| &links.losses).map(|(_, packets)| packets).sum();
        Row {
            protocol: way.name(),
            in_network: way.sums_in_network(),
            step_seconds: step.and_then(|step| step.seconds).map(full),
            exposed_seconds: step.and_then(|step| step.exposed_seconds).map(full),
            goodput_gbps: step.and_then(|step| step.goodput_gbps),
            switch_memory_bytes: report.switch_memory_bytes,
            packets_lost: lost,
            packets_again: report.jobs.iter().map(|job| job.retransmissions).sum(),
            notes: steps.flat_map(|step| step.notes.clone()).collect(),
            failure,
        }
    }

    /// The line of a protocol that cannot run here.
    pub fn refused(way: Way, why: String) -> Row {
        Row {
            protocol: way.name(),
            in_network: way.sums_in_network(),
            step_seconds: None,
            exposed_seconds: None,
            goodput_gbps: None,
            switch_memory_bytes: 0,
            packets_lost: 0,
            packets_again: 0,
            notes: Vec::new(),
            failure: Some(why),
        }
    }
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The network.
    pub network: String,
    /// What nobody said about the network, and the plan assumes.
    pub assumed: Vec<String>,
    /// The step.
    pub step: StepShape,
    /// Sizes and computations were divided by this, and times multiplied.
    pub scale: u64,
    /// What packets cost hosts' processors, where they cost anything.
    pub host_costs: Option<HostCosts>,
    /// A line for each protocol, the fastest first.
    pub rows: Vec<Row>,
    /// What to take, and why.
    pub recommendation: String,
}

/// A gain below this is not worth a switch: other effects are larger.
const WORTH: f64 = 0.02;

impl Outcome {
    /// The plan of these lines.
    pub fn new(experiment: &Experiment, mut rows: Vec<Row>) -> Outcome {
        if let Some(memory) = experiment.links.switch_memory {
            for row in rows.iter_mut().filter(|row| row.switch_memory_bytes as u64 > memory) {
                row.notes.push(format!("the switch has only {} KiB for jobs", memory / 1024));
            }
        }
        rows.sort_by(|one, other| {
            let time = |row: &Row| row.step_seconds.unwrap_or(f64::INFINITY);
            time(one).total_cmp(&time(other))
        });
        let recommendation = recommend(&rows, experiment.step.compute.0.as_secs_f64());
        Outcome {
            network: experiment.links.name.clone(),
            assumed: experiment.links.assumed.clone(),
            step: experiment.step.clone(),
            scale: experiment.scale,
            host_costs: experiment.costs,
            rows,
            recommendation,
        }
    }

    /// The plan as text.
    pub fn text(&self) -> String {
        let StepShape { kind, parameters, compute, dtype, .. } = &self.step;
        let mut text =
            format!("{kind}, {parameters} parameters of {dtype}, {compute} of computing, {}\n", self.network);
        for assumed in &self.assumed {
            text += &format!("{assumed}\n");
        }
        if let Some(costs) = &self.host_costs {
            text += &format!("{}\n", costs.text());
        }
        if self.scale > 1 {
            text += &format!(
                "SCALED DOWN {0} times, sizes and computing: times are {0} times those of the runs; delays did not scale\n",
                self.scale
            );
        }
        let mut table = Table::new(["protocol", "sums", "step", "exposed", "goodput", "memory", "lost", "again"]);
        for row in &self.rows {
            let shown = |seconds: Option<f64>| seconds.map_or("-".into(), ms);
            table.row([
                row.protocol.to_string(),
                (if row.in_network { "network" } else { "hosts" }).to_string(),
                shown(row.step_seconds),
                shown(row.exposed_seconds),
                row.goodput_gbps.map_or("-".into(), |goodput| format!("{goodput:.2} Gbit/s")),
                format!("{:.1} KiB", row.switch_memory_bytes as f64 / 1024.0),
                row.packets_lost.to_string(),
                row.packets_again.to_string(),
            ]);
        }
        text += &format!("\n{}\n\n", table.render());
        for row in &self.rows {
            let whys = row.failure.iter().map(|why| format!("{}: no times: {why}\n", row.protocol));
            text.extend(whys.chain(row.notes.iter().map(|note| format!("{}: {note}\n", row.protocol))));
        }
        text + &self.recommendation
    }

    /// The plan as pictures.
    pub fn figures(&self) -> Value {
        let timed: Vec<&Row> = self.rows.iter().filter(|row| row.step_seconds.is_some()).collect();
        let line = |of: fn(&Row) -> Option<f64>| {
            let values = timed.iter().enumerate();
            values.filter_map(|(index, row)| Some([index as f64, 1e3 * of(row)?])).collect()
        };
        let names: Vec<String> = timed.iter().enumerate().map(|(at, row)| format!("{at} {}", row.protocol)).collect();
        let series = [
            Series::new("step", line(|row| row.step_seconds)),
            Series::new("exposed communication", line(|row| row.exposed_seconds)),
        ];
        let figure = Figure {
            title: self.network.clone(),
            x: names.join(", "),
            y: "ms".into(),
            log_x: false,
            series: series.into(),
            marks: Vec::new(),
        };
        json!({ "id": "plan", "title": self.recommendation, "quick": false, "figures": [figure] })
    }
}

fn ms(seconds: f64) -> String {
    format!("{:.2} ms", 1e3 * seconds)
}

/// The fastest way, unless switches are hardly faster than hosts. The lines are in the order of their steps.
fn recommend(rows: &[Row], computes: f64) -> String {
    let best = |in_network: bool| {
        let timed = rows.iter().filter(|row| row.in_network == in_network);
        timed.filter_map(|row| Some((row.protocol, row.step_seconds?, row.exposed_seconds?))).next()
    };
    let waits = |exposed: f64| format!("{} of a step wait for the network", ms(exposed));
    match (best(true), best(false)) {
        (None, None) => "No protocol could run this step: see above.".to_string(),
        (Some((name, step, exposed)), None) | (None, Some((name, step, exposed))) => {
            format!("Of these, take {name}: a step takes {}, and {}.", ms(step), waits(exposed))
        }
        (Some((network, fast, exposed)), Some((hosts, slow, hosts_exposed))) => {
            let gain = 1.0 - fast / slow;
            if gain >= WORTH {
                return format!(
                    "Take {network}: a step takes {}, {:.0} % less than with {hosts}, the fastest without switches, because \
                     {} instead of {}.",
                    ms(fast),
                    100.0 * gain,
                    waits(exposed),
                    ms(hosts_exposed)
                );
            }
            let why = match hosts_exposed < 2.0 * WORTH * computes {
                true => format!("computing hides all but {} of the communication", ms(hosts_exposed)),
                false => {
                    format!("{} wait for the network with {hosts}, and {} with it", ms(hosts_exposed), ms(exposed))
                }
            };
            format!(
                "Take {hosts}, which needs no switch: {network} would change a step of {} by {:.1} %, because {why}.",
                ms(slow),
                -100.0 * gain
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(protocol: &'static str, in_network: bool, step: f64, exposed: f64) -> Row {
        Row {
            in_network,
            step_seconds: Some(step),
            exposed_seconds: Some(exposed),
            failure: None,
            protocol,
            goodput_gbps: None,
            switch_memory_bytes: 0,
            packets_lost: 0,
            packets_again: 0,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_switch_is_recommended_for_what_it_saves_and_only_then() {
        let rows = [row("fast", true, 0.105, 0.005), row("plain", false, 0.12, 0.02)];
        assert_eq!(
            recommend(&rows, 0.1),
            "Take fast: a step takes 105.00 ms, 12 % less than with plain, the fastest without switches, because 5.00 ms \
             of a step wait for the network instead of 20.00 ms."
        );
        let rows = [row("fast", true, 0.1001, 0.0001), row("plain", false, 0.101, 0.001)];
        let sentence = recommend(&rows, 0.1);
        assert!(sentence.starts_with("Take plain, which needs no switch"), "{sentence}");
        assert!(sentence.ends_with("because computing hides all but 1.00 ms of the communication."), "{sentence}");
        assert_eq!(recommend(&[], 0.1), "No protocol could run this step: see above.");
    }
}
