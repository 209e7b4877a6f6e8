//! The results of a collective on a fabric, rank by rank and port by port.

use std::collections::BTreeSet;

use serde::Serialize;
use tributary_net::status::{FabricStatus, MetricNumber, SharedStatus, SwitchStatus, TreeStatus};

use super::plan::Plan;
use crate::cluster::WorkerReport;
use crate::commands::status::trees;
use crate::output::Table;

/// The result of `--kill`.
pub struct Death {
    pub switch: String,
    /// False if all hosts had their sums before it was time.
    pub in_time: bool,
}

/// All observations.
#[derive(Serialize)]
pub struct Report {
    protocol: &'static str,
    elements: usize,
    dtype: &'static str,
    iters: u32,
    elements_per_packet: u16,
    /// The job's, over all of its trees.
    slots: u16,
    /// The switch that was killed while hosts summed.
    killed: Option<String>,
    /// The switch that was not killed, because all hosts had their sums before.
    #[serde(skip_serializing_if = "Option::is_none")]
    spared: Option<String>,
    /// The trees that were planned for the job, if its protocol has planned trees.
    trees: Vec<TreeStatus>,
    ranks: Vec<Rank>,
    switches: Vec<Switch>,
}

#[derive(Serialize)]
struct Rank {
    host: String,
    seconds: f64,
    goodput_gbps: f64,
    packets_sent: u64,
    retransmissions: u64,
    in_network: f64,
}

#[derive(Serialize)]
struct Switch {
    node: String,
    shared: Vec<SharedStatus>,
    ports: Vec<Port>,
}

/// The traffic of one port during the collective.
#[derive(Serialize)]
struct Port {
    peer: String,
    up: bool,
    tx_packets: u64,
    tx_bytes: u64,
    tx_drops: u64,
    tx_marks: u64,
    /// In a lossless fabric: how often this port paused the other end, and how often the other end paused this port.
    pauses_given: u64,
    pauses_taken: u64,
    /// The longest queue since the switch started.
    peak_queued_bytes: u64,
}

impl Report {
    /// Joins the ranks' reports, and what the switches counted between two observations.
    pub fn new(
        plan: &Plan,
        hosts: Vec<String>,
        ranks: Vec<WorkerReport>,
        before: &[SwitchStatus],
        after: Vec<SwitchStatus>,
        death: Option<Death>,
    ) -> Report {
        let trees = ranks.first().map(|report| report.trees.clone()).unwrap_or_default();
        let granted = ranks.first().map(|report| (report.elements_per_packet, report.slots));
        let (elements_per_packet, slots) = granted.unwrap_or_default();
        let bits = (plan.elements * plan.dtype.size() * 8) as f64;
        let rank = |(host, report): (String, WorkerReport)| Rank {
            host,
            seconds: report.seconds,
            goodput_gbps: bits / report.seconds / 1e9,
            packets_sent: report.packets_sent,
            retransmissions: report.retransmissions,
            in_network: report.in_network,
        };
        let then = |node: &str| {
            before.iter().filter_map(|status| status.switch.fabric.as_ref()).find(|fabric| fabric.node == node)
        };
        let switches = after.into_iter().filter_map(|status| Some((status.switch.fabric?, status.switch.shared)));
        Report {
            protocol: plan.protocol.name,
            elements: plan.elements,
            dtype: plan.dtype.name(),
            iters: plan.iters,
            elements_per_packet,
            slots,
            killed: death.as_ref().filter(|death| death.in_time).map(|death| death.switch.clone()),
            spared: death.filter(|death| !death.in_time).map(|death| death.switch),
            trees,
            ranks: hosts.into_iter().zip(ranks).map(rank).collect(),
            switches: switches.map(|(fabric, shared)| Switch::new(then(&fabric.node), &fabric, shared)).collect(),
        }
    }

    /// The error, if there is one. Every rank has checked its own sum.
    pub fn error(&self) -> Option<String> {
        let in_use = |switch: &Switch| switch.shared.iter().map(|shared| shared.slots_in_use).sum::<u32>();
        self.switches.iter().find(|switch| in_use(switch) > 0).map(|switch| {
            format!("switch {} still holds {} slots although no job is left", switch.node, in_use(switch))
        })
    }

    /// The tables for people.
    pub fn render(&self) -> String {
        let slowest = self.ranks.iter().map(|rank| rank.seconds).fold(0.0, f64::max);
        let goodput = self.ranks.iter().map(|rank| rank.goodput_gbps).fold(f64::INFINITY, f64::min);
        let killed = self.killed.as_ref().map(|switch| format!(" {switch} was killed meanwhile."));
        let spared = self.spared.as_ref().map(|switch| {
            format!(" {switch} was not killed: the hosts were done before its time. Kill it earlier, or sum with more --iters.")
        });
        let killed = killed.or(spared).unwrap_or_default();
        let median = if self.iters == 1 { String::new() } else { format!(" (median of {})", self.iters) };
        format!(
            "{} hosts summed {} {} with {} in {slowest:.3} s{median}: {goodput:.3} Gbit/s at the slowest. Every rank has checked \
             every element.{killed}\n\n{}{}\n\n{}\n\n{}",
            self.ranks.len(),
            self.elements,
            self.dtype,
            self.protocol,
            self.drawn_trees(),
            self.rank_table(),
            self.port_table(),
            self.shared_table()
        )
    }

    /// The trees, each followed by an empty line.
    fn drawn_trees(&self) -> String {
        let drawn = |(number, tree)| format!("{}\n\n", trees::whole("planned", number, tree).join("\n"));
        self.trees.iter().enumerate().map(drawn).collect()
    }

    fn rank_table(&self) -> String {
        let mut table = Table::new(["HOST", "SECONDS", "GBIT/S", "PACKETS", "SENT AGAIN", "SUMMED IN THE NETWORK"]);
        for rank in &self.ranks {
            table.row([
                rank.host.clone(),
                format!("{:.3}", rank.seconds),
                format!("{:.3}", rank.goodput_gbps),
                rank.packets_sent.to_string(),
                rank.retransmissions.to_string(),
                format!("{:.1} %", rank.in_network * 100.0),
            ]);
        }
        table.render()
    }

    fn port_table(&self) -> String {
        let mut table = Table::new([
            "SWITCH",
            "TO",
            "UP",
            "PACKETS",
            "MB",
            "DROPPED",
            "MARKED",
            "LONGEST QUEUE KIB",
            "PAUSED IT",
            "PAUSED BY IT",
        ]);
        for switch in &self.switches {
            for port in &switch.ports {
                table.row([
                    switch.node.clone(),
                    port.peer.clone(),
                    if port.up { "yes" } else { "no" }.to_string(),
                    port.tx_packets.to_string(),
                    format!("{:.2}", port.tx_bytes as f64 / 1e6),
                    port.tx_drops.to_string(),
                    port.tx_marks.to_string(),
                    format!("{:.1}", port.peak_queued_bytes as f64 / 1024.0),
                    port.pauses_given.to_string(),
                    port.pauses_taken.to_string(),
                ]);
            }
        }
        table.render()
    }

    /// The memory that jobs share at each switch. Each protocol has its own figures.
    fn shared_table(&self) -> String {
        let all = || self.switches.iter().flat_map(|switch| switch.shared.iter().map(move |shared| (switch, shared)));
        let protocols: BTreeSet<&str> = all().map(|(_, shared)| shared.protocol.as_str()).collect();
        let table = |protocol: &str| {
            let of_it = || all().filter(|(_, shared)| shared.protocol == protocol);
            let own = of_it().next().map(|(_, shared)| shared.metrics.as_slice()).unwrap_or_default();
            let own = own.iter().map(|metric| metric.name.replace('_', " ").to_uppercase());
            let mut table =
                Table::new(["SWITCH", "PROTOCOL", "SLOTS", "IN USE", "PEAK"].map(str::to_owned).into_iter().chain(own));
            for (switch, shared) in of_it() {
                let cells = [switch.node.clone(), shared.protocol.clone()];
                let counts = [shared.slots, shared.slots_in_use, shared.slots_peak].map(|count| count.to_string());
                let own = shared.metrics.iter().map(|metric| match metric.value {
                    MetricNumber::Counter(count) => count.to_string(),
                    MetricNumber::Gauge(value) => value.to_string(),
                });
                table.row(cells.into_iter().chain(counts).chain(own));
            }
            table.render()
        };
        protocols.into_iter().map(table).collect::<Vec<_>>().join("\n\n")
    }
}

impl Switch {
    fn new(before: Option<&FabricStatus>, after: &FabricStatus, shared: Vec<SharedStatus>) -> Switch {
        let ports = after.ports.iter().map(|port| {
            let then = before.and_then(|before| before.ports.get(usize::from(port.port)));
            let since = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0));
            Port {
                peer: port.peer.clone(),
                up: port.up,
                tx_packets: since(port.tx_packets, then.map(|then| then.tx_packets)),
                tx_bytes: since(port.tx_bytes, then.map(|then| then.tx_bytes)),
                tx_drops: since(port.tx_drops, then.map(|then| then.tx_drops)),
                tx_marks: since(port.tx_marks, then.map(|then| then.tx_marks)),
                pauses_given: since(port.pauses_given, then.map(|then| then.pauses_given)),
                pauses_taken: since(port.pauses_taken, then.map(|then| then.pauses_taken)),
                peak_queued_bytes: port.peak_queued_bytes,
            }
        });
        Switch { node: after.node.clone(), shared, ports: ports.collect() }
    }
}
