//! Bottlenecks in a report: which link or switch took most of the time of what a job's hosts received, and which rank was
//! last.

use std::cmp::Reverse;
use std::fmt;

use serde::Serialize;
use tributary_proto::contract::time::Span;

use super::JobReport;
use super::text::time;
use crate::capture::{JobJourneys, Stage};
use crate::topology::Graph;

/// The most bottlenecks and ranks of a job in a report, and in the text.
const MOST: usize = 16;
const SHOWN: usize = 4;

/// What a job waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BottleneckReport {
    /// Packets that reached its hosts.
    pub packets: u64,
    /// How long each was on its way on average, from the host whose packet completed it, in seconds.
    pub mean_seconds: f64,
    /// How many links and switches took the most of some packet's time.
    pub bottlenecks: usize,
    /// Those that did so for the longest time, at most 16.
    pub shares: Vec<BottleneckShare>,
    /// The ranks whose packets completed sums in switches, at most 16, the most frequent first.
    pub last: Vec<LastShare>,
    /// Packets that began in a switch: those that timers sent, without having waited for any rank.
    pub begun_in_switches: u64,
}

/// A link or a switch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BottleneckShare {
    /// "leaf 0 to host 3", for its queue and itself; or "leaf 0", for its programs, cores and accelerator.
    pub at: String,
    /// Of the time of all packets, that of those of which it took the most.
    pub share: f64,
}

/// A rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LastShare {
    /// Its number; of several on one host, the first.
    pub rank: usize,
    /// The share of sums that its packet completed.
    pub share: f64,
}

impl BottleneckReport {
    /// What a job waited for; `None` if nothing has reached its hosts.
    pub(super) fn new(graph: &Graph, job: &JobReport, journeys: &JobJourneys) -> Option<BottleneckReport> {
        let JobJourneys { packets, time, ref bottlenecks, ref last, begun_in_switches } = *journeys;
        let mut longest: Vec<_> = bottlenecks.iter().collect();
        longest.sort_by_key(|(_, time)| Reverse(**time));
        let share = |(stage, of): (&Stage, &Span)| BottleneckShare {
            at: name(graph, *stage),
            share: of.0 as f64 / time.0.max(1) as f64,
        };
        let mut latest: Vec<_> = last.iter().collect();
        latest.sort_by_key(|(_, count)| Reverse(**count));
        let sums: u64 = last.values().sum();
        let last = latest.into_iter().filter_map(|(host, &count)| {
            let rank = job.hosts.iter().position(|of_rank| *of_rank == host.0)?;
            Some(LastShare { rank, share: count as f64 / sums as f64 })
        });
        (packets > 0).then(|| BottleneckReport {
            packets,
            mean_seconds: time.as_secs_f64() / packets as f64,
            bottlenecks: bottlenecks.len(),
            shares: longest.into_iter().take(MOST).map(share).collect(),
            last: last.take(MOST).collect(),
            begun_in_switches,
        })
    }
}

fn name(graph: &Graph, stage: Stage) -> String {
    match stage {
        Stage::Link(link) => graph.link_name(link),
        Stage::Switch(node) => graph.name(node),
    }
}

impl fmt::Display for BottleneckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let shares = self.shares.iter().take(SHOWN).map(|one| format!("{} {}", one.at, percent(one.share)));
        let shares: Vec<String> = shares.collect();
        writeln!(f, "  bottleneck  {} (of {} a packet)", shares.join(", "), time(self.mean_seconds))?;
        let last = self.last.iter().take(SHOWN).map(|one| format!("rank {} {}", one.rank, percent(one.share)));
        match last.collect::<Vec<_>>() {
            last if last.is_empty() => Ok(()),
            last => writeln!(f, "  last        {}", last.join(", ")),
        }
    }
}
