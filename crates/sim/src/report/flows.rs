//! Messages and flows under a transport in a report: completion times, of flows by size.

use serde::Serialize;
use tributary_proto::congestion::dctcp;
use tributary_proto::contract::ids::NodeId;

use super::percentile;
use crate::engine::Simulation;
use crate::transport::TransportHost;

/// All messages with an end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlowReport {
    /// How many there were.
    pub flows: usize,
    /// How many were completely received.
    pub finished: usize,
    /// Of finished messages, the mean completion time in seconds.
    pub mean_seconds: f64,
    /// Median.
    pub p50_seconds: f64,
    /// 99th percentile.
    pub p99_seconds: f64,
    /// The longest.
    pub max_seconds: f64,
}

/// One finished message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRow {
    /// "message", or the name of a flow's congestion controller.
    pub kind: &'static str,
    /// Sender.
    pub src: u32,
    /// Receiver.
    pub dst: u32,
    /// Bytes: for a message on links, under DCTCP of data.
    pub bytes: u64,
    /// When it arose, in seconds.
    pub start: f64,
    /// Its completion time.
    pub seconds: f64,
    /// The class of its settings.
    pub class: u8,
    /// That time over the time that it takes alone; `None` for messages without a transport, and if no path is left.
    pub slowdown: Option<f64>,
}

/// Every finished message.
pub(super) fn message_rows(simulation: &Simulation) -> Vec<FlowRow> {
    let flows = simulation.traffic.flows.all().iter();
    flows
        .filter_map(|flow| {
            let seconds = flow.end?.since(flow.start).as_secs_f64();
            let start = flow.start.as_secs_f64();
            let (src, dst, bytes) = (flow.src.0, flow.dst.0, flow.bytes);
            Some(FlowRow { kind: "message", src, dst, bytes, start, seconds, class: 0, slowdown: None })
        })
        .collect()
}

/// `None` if there were no messages.
pub(super) fn message_report(flows: usize, rows: &[FlowRow]) -> Option<FlowReport> {
    if flows == 0 {
        return None;
    }
    let seconds = ascending(rows.iter().map(|row| row.seconds));
    Some(FlowReport {
        flows,
        finished: rows.len(),
        mean_seconds: mean(&seconds),
        p50_seconds: percentile(&seconds, 0.5),
        p99_seconds: percentile(&seconds, 0.99),
        max_seconds: percentile(&seconds, 1.0),
    })
}

/// How texts call flows under a congestion controller.
pub(super) fn flows_under(name: &str) -> String {
    if name == dctcp::ALGORITHM.name { "flows under DCTCP".into() } else { format!("flows under {name}") }
}

/// All flows under the transport.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransportReport {
    /// Their congestion controller; several are joined by commas.
    pub congestion_control: String,
    /// Flows that began.
    pub started: usize,
    /// Flows all of whose bytes arrived.
    pub finished: usize,
    /// Packets that were sent again.
    pub retransmissions: u64,
    /// The finished flows: all, and by size.
    pub classes: Vec<FlowClass>,
    /// If there are several settings of flows, the flows of each, in the file's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<TransportReport>,
}

/// Flows of a range of sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowClass {
    /// The range.
    pub name: &'static str,
    /// How many have finished.
    pub flows: usize,
    /// Mean time from a flow's beginning to the arrival of its last byte, in seconds.
    pub mean_seconds: f64,
    /// Median.
    pub p50_seconds: f64,
    /// 99th percentile.
    pub p99_seconds: f64,
    /// The mean of their slowdowns: of their times over those that they take alone.
    pub mean_slowdown: f64,
    /// Median.
    pub p50_slowdown: f64,
    /// 95th percentile.
    pub p95_slowdown: f64,
    /// 99th percentile.
    pub p99_slowdown: f64,
    /// Jain's index of the flows' rates: 1 if all have the same, 1 / n if one of n has all (Jain, Chiu and Hawe, 1984).
    pub jain: f64,
}

/// The classes that papers have used since pFabric (SIGCOMM 2013): more than the first, up to the second number of bytes.
const CLASSES: [(&str, u64, u64); 4] = [
    ("all", 0, u64::MAX),
    ("up to 100 kB", 0, 100_000),
    ("up to 10 MB", 100_000, 10_000_000),
    ("above 10 MB", 10_000_000, u64::MAX),
];

/// Every finished flow, in the order of receivers and of time.
pub(super) fn transport_rows(simulation: &Simulation) -> Vec<FlowRow> {
    let hosts = (0..simulation.graph().hosts()).map(NodeId);
    let ends = hosts.filter_map(|host| Some((host, simulation.transport(host)?)));
    ends.flat_map(|(host, end)| end.arrived().iter().map(move |arrived| (host, arrived)))
        .filter_map(|(host, arrived)| {
            // A sender that died has forgotten its flows.
            let started = simulation.transport(arrived.from)?.started().get(arrived.flow as usize)?;
            let seconds = arrived.at.since(started.at).as_secs_f64();
            let alone = simulation.time_alone((arrived.from, host), started.bytes, started.class);
            Some(FlowRow {
                kind: simulation.congestion_control(started.class).name,
                src: arrived.from.0,
                dst: host.0,
                bytes: started.bytes,
                start: started.at.as_secs_f64(),
                seconds,
                class: started.class,
                slowdown: alone.map(|alone| seconds / alone.as_secs_f64()),
            })
        })
        .collect()
}

/// `None` if no flow began.
pub(super) fn transport_report(simulation: &Simulation, rows: &[FlowRow]) -> Option<TransportReport> {
    let used: Vec<u8> = (0..simulation.transports()).filter(|&class| started(simulation, class) > 0).collect();
    let each: Vec<TransportReport> = used.iter().map(|&class| of_class(simulation, class, rows)).collect();
    if each.len() < 2 {
        return each.into_iter().next();
    }
    let mut names: Vec<&str> = each.iter().map(|report| &*report.congestion_control).collect();
    names.dedup();
    Some(TransportReport {
        congestion_control: names.join(", "),
        started: each.iter().map(|report| report.started).sum(),
        finished: rows.len(),
        retransmissions: each.iter().map(|report| report.retransmissions).sum(),
        classes: classes(rows.iter()),
        each,
    })
}

fn ends(simulation: &Simulation) -> impl Iterator<Item = &TransportHost> {
    (0..simulation.graph().hosts()).filter_map(|host| simulation.transport(NodeId(host)))
}

/// How many flows of a class of settings began.
fn started(simulation: &Simulation, class: u8) -> usize {
    ends(simulation).map(|end| end.started().iter().filter(|flow| flow.class == class).count()).sum()
}

/// The flows of one class of settings.
fn of_class(simulation: &Simulation, class: u8, rows: &[FlowRow]) -> TransportReport {
    let rows = || rows.iter().filter(|row| row.class == class);
    TransportReport {
        congestion_control: simulation.congestion_control(class).name.to_string(),
        started: started(simulation, class),
        finished: rows().count(),
        retransmissions: ends(simulation).map(|end| end.retransmissions_of(class)).sum(),
        classes: classes(rows()),
        each: Vec::new(),
    }
}

fn classes<'a>(rows: impl Iterator<Item = &'a FlowRow> + Clone) -> Vec<FlowClass> {
    CLASSES.iter().filter_map(|&(name, more_than, most)| class(name, more_than, most, rows.clone())).collect()
}

fn class<'a>(
    name: &'static str,
    more_than: u64,
    most: u64,
    rows: impl Iterator<Item = &'a FlowRow> + Clone,
) -> Option<FlowClass> {
    let members = || rows.clone().filter(move |row| row.bytes > more_than && row.bytes <= most);
    let seconds = ascending(members().map(|row| row.seconds));
    let slowdowns = ascending(members().filter_map(|row| row.slowdown));
    (!seconds.is_empty()).then(|| FlowClass {
        name,
        flows: seconds.len(),
        mean_seconds: mean(&seconds),
        p50_seconds: percentile(&seconds, 0.5),
        p99_seconds: percentile(&seconds, 0.99),
        mean_slowdown: mean(&slowdowns),
        p50_slowdown: percentile(&slowdowns, 0.5),
        p95_slowdown: percentile(&slowdowns, 0.95),
        p99_slowdown: percentile(&slowdowns, 0.99),
        jain: jain(members().map(|row| row.bytes as f64 / row.seconds)),
    })
}

/// Jain's index of some rates.
fn jain(rates: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) =
        rates.fold((0.0, 0.0, 0.0), |(count, sum, squares), rate| (count + 1.0, sum + rate, squares + rate * rate));
    sum * sum / (count * squares)
}

/// How many sizes a line of slowdowns has: as many flows belong to each.
const SIZES: usize = 20;

/// Slowdowns over sizes, as papers have drawn them since HPCC (figure 10): flows are grouped by size, and of each group this
/// percentile is drawn at its largest size.
pub(super) fn slowdowns_by_size(mut flows: Vec<(u64, f64)>, share: f64) -> Vec<[f64; 2]> {
    flows.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let each = flows.len().div_ceil(SIZES).max(1);
    let mut points: Vec<[f64; 2]> = Vec::new();
    let mut rest = &flows[..];
    while let Some(&(size, _)) = rest.get(each.min(rest.len()).wrapping_sub(1)) {
        // Flows of one size are not divided.
        let (group, behind) = rest.split_at(rest.partition_point(|flow| flow.0 <= size));
        points.push([size as f64, percentile(&ascending(group.iter().map(|flow| flow.1)), share)]);
        rest = behind;
    }
    points
}

fn ascending(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_classed_by_their_bytes() {
        let row = |bytes, seconds| FlowRow {
            kind: "dctcp",
            src: 0,
            dst: 1,
            bytes,
            start: 0.0,
            seconds,
            class: 0,
            slowdown: Some(2.0 * seconds),
        };
        let rows = [row(1, 1.0), row(100_000, 3.0), row(100_001, 5.0), row(10_000_001, 7.0)];
        let classes: Vec<(usize, f64, f64)> =
            classes(rows.iter()).iter().map(|class| (class.flows, class.mean_seconds, class.p99_slowdown)).collect();
        assert_eq!(classes, [(4, 4.0, 14.0), (2, 2.0, 6.0), (1, 5.0, 10.0), (1, 7.0, 14.0)]);
    }

    #[test]
    fn jains_index_is_one_for_equal_rates_and_a_share_for_one_that_has_all() {
        assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), 1.0);
        assert_eq!(jain([5.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
        assert!((jain([1.0, 3.0].into_iter()) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn slowdowns_are_grouped_by_size_and_flows_of_one_size_stay_together() {
        let flows = (1..=100).map(|n| (n, n as f64)).collect();
        let points = slowdowns_by_size(flows, 1.0);
        assert_eq!((points.len(), points[0], points[19]), (SIZES, [5.0, 5.0], [100.0, 100.0]));
        let same = vec![(7, 3.0), (7, 1.0), (7, 2.0)];
        assert_eq!(slowdowns_by_size(same, 0.5), [[7.0, 2.0]]);
        assert_eq!(slowdowns_by_size(Vec::new(), 0.5), [[0.0; 2]; 0]);
    }
}
