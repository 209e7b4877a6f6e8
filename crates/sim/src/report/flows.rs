//! Messages and flows under a transport in a report: completion times, of flows by size.

use serde::Serialize;
use tributary_proto::congestion::dctcp;
use tributary_proto::contract::ids::NodeId;

use super::percentile;
use crate::engine::Simulation;

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
            Some(FlowRow { kind: "message", src, dst, bytes, start, seconds, slowdown: None })
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
    /// The congestion controller of all of them.
    pub congestion_control: &'static str,
    /// Flows that began.
    pub started: usize,
    /// Flows all of whose bytes arrived.
    pub finished: usize,
    /// Packets that were sent again.
    pub retransmissions: u64,
    /// The finished flows: all, and by size.
    pub classes: Vec<FlowClass>,
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
    /// 99th percentile.
    pub p99_slowdown: f64,
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
            let alone = simulation.time_alone(arrived.from, host, started.bytes);
            Some(FlowRow {
                kind: simulation.congestion_control().name,
                src: arrived.from.0,
                dst: host.0,
                bytes: started.bytes,
                start: started.at.as_secs_f64(),
                seconds,
                slowdown: alone.map(|alone| seconds / alone.as_secs_f64()),
            })
        })
        .collect()
}

/// `None` if no flow began.
pub(super) fn transport_report(simulation: &Simulation, rows: &[FlowRow]) -> Option<TransportReport> {
    let ends = || (0..simulation.graph().hosts()).filter_map(|host| simulation.transport(NodeId(host)));
    let started = ends().map(|end| end.started().len()).sum();
    (started > 0).then(|| TransportReport {
        congestion_control: simulation.congestion_control().name,
        started,
        finished: rows.len(),
        retransmissions: ends().map(|end| end.retransmissions()).sum(),
        classes: CLASSES.iter().filter_map(|&(name, more_than, most)| class(name, more_than, most, rows)).collect(),
    })
}

fn class(name: &'static str, more_than: u64, most: u64, rows: &[FlowRow]) -> Option<FlowClass> {
    let members = || rows.iter().filter(|row| row.bytes > more_than && row.bytes <= most);
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
        p99_slowdown: percentile(&slowdowns, 0.99),
    })
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
            slowdown: Some(2.0 * seconds),
        };
        let rows = [row(1, 1.0), row(100_000, 3.0), row(100_001, 5.0), row(10_000_001, 7.0)];
        let classes: Vec<(usize, f64, f64)> = CLASSES
            .iter()
            .filter_map(|&(name, more_than, most)| class(name, more_than, most, &rows))
            .map(|class| (class.flows, class.mean_seconds, class.p99_slowdown))
            .collect();
        assert_eq!(classes, [(4, 4.0, 14.0), (2, 2.0, 6.0), (1, 5.0, 10.0), (1, 7.0, 14.0)]);
    }
}
