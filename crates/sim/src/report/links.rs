//! Links in a report: every one for files, groups of them for people.

use std::cmp::Ordering;

use serde::Serialize;

use crate::engine::Simulation;
use crate::net::{LinkCounters, LossCause};
use crate::topology::Graph;
use crate::topology::LinkId;

/// One direction of one link over a run.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkRow {
    /// The link.
    pub link: LinkId,
    /// The near end: "host 3", "spine 0".
    pub from: String,
    /// The far end.
    pub to: String,
    /// Level of the near end above the hosts, 0 for a host.
    pub from_level: u8,
    /// Level of the far end.
    pub to_level: u8,
    /// The share of the run that the link spent sending.
    pub utilisation: f64,
    /// The link's counters.
    pub counters: LinkCounters,
}

impl LinkRow {
    /// The name of its group.
    pub fn group(&self) -> String {
        match self.position() {
            (0, direction) => format!("host {direction}"),
            (level, direction) => format!("level {level} {direction}"),
        }
    }

    /// The lower end's level, and the direction.
    fn position(&self) -> (u8, &'static str) {
        match self.from_level.cmp(&self.to_level) {
            Ordering::Less => (self.from_level, "up"),
            Ordering::Equal => (self.from_level, "across"),
            Ordering::Greater => (self.to_level, "down"),
        }
    }
}

/// All links between the same levels in the same direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkGroup {
    /// "host up", "level 1 up", "level 2 down" ...
    pub name: String,
    /// How many links it has.
    pub links: usize,
    /// The mean share of the run that they spent sending.
    pub mean_utilisation: f64,
    /// The highest such share.
    pub max_utilisation: f64,
    /// Packets that joined their queues.
    pub packets: u64,
    /// Their bytes, framing included.
    pub bytes: u64,
    /// The most bytes that ever waited in one queue.
    pub max_queue_bytes: u64,
    /// Packets that were marked.
    pub marks: u64,
    /// How often their far ends ordered a PAUSE.
    pub pauses: u64,
    /// Packets that were lost, by cause; only causes that occurred.
    pub losses: Vec<(&'static str, u64)>,
}

/// Every direction of every link.
pub fn rows(simulation: &Simulation) -> Vec<LinkRow> {
    let (fabric, graph) = (&simulation.fabric, simulation.graph());
    let elapsed = fabric.now.0.max(1) as f64;
    (0..fabric.links().len() as u32)
        .map(|number| {
            let link = LinkId(number);
            let (from, to) = graph.ends(link);
            LinkRow {
                link,
                from: graph.name(from),
                to: graph.name(to),
                from_level: graph.level(from),
                to_level: graph.level(to),
                utilisation: fabric.link(link).busy_time(fabric.now).0 as f64 / elapsed,
                counters: fabric.counters(link),
            }
        })
        .collect()
}

/// How many packets were lost to full queues.
pub fn overflows(rows: &[LinkRow]) -> u64 {
    rows.iter().map(|row| row.counters.losses[LossCause::QueueFull as usize]).sum()
}

/// The rows, summed by levels and direction.
pub fn groups(graph: &Graph, rows: &[LinkRow]) -> Vec<LinkGroup> {
    let highest = (0..graph.switches()).map(|switch| graph.level(graph.switch(switch))).max().unwrap_or(1);
    let mut groups = Vec::new();
    for level in 0..=highest {
        for direction in ["up", "across", "down"] {
            let rows: Vec<&LinkRow> = rows.iter().filter(|row| row.position() == (level, direction)).collect();
            groups.extend(rows.first().map(|row| group(row.group(), &rows)));
        }
    }
    groups
}

fn group(name: String, rows: &[&LinkRow]) -> LinkGroup {
    let sum = |figure: &dyn Fn(&LinkCounters) -> u64| rows.iter().map(|row| figure(&row.counters)).sum::<u64>();
    LinkGroup {
        name,
        links: rows.len(),
        mean_utilisation: rows.iter().map(|row| row.utilisation).sum::<f64>() / rows.len() as f64,
        max_utilisation: rows.iter().map(|row| row.utilisation).fold(0.0, f64::max),
        packets: sum(&|counters| counters.packets),
        bytes: sum(&|counters| counters.bytes),
        max_queue_bytes: rows.iter().map(|row| row.counters.max_queue_bytes).max().unwrap_or(0),
        marks: sum(&|counters| counters.marks),
        pauses: sum(&|counters| counters.pauses),
        losses: LossCause::ALL
            .into_iter()
            .map(|cause| (cause.name(), sum(&|counters| counters.losses[cause as usize])))
            .filter(|&(_, count)| count > 0)
            .collect(),
    }
}
