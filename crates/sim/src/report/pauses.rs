//! PAUSE trees in a report: from which queue each PAUSE has spread, over which links, and how far.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::text::{number, time};
use crate::engine::Simulation;
use crate::net::{Cause, Pause};
use crate::topology::{Graph, LinkId};

/// The most trees of a report, and the most branches of a tree: those that were stopped longest.
const MOST_TREES: usize = 16;
const MOST_BRANCHES: usize = 16;
/// The same in the text.
const TREES_SHOWN: usize = 4;
const BRANCHES_SHOWN: usize = 4;

/// Every PAUSE of a run, and the trees along which they spread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PausesReport {
    /// Orders to stop.
    pub stops: u64,
    /// Those among them that were too many to keep, and are in no tree.
    pub left_out: u64,
    /// How many trees there are: queues, and programs of switches, that filled up though nothing stopped them.
    pub roots: usize,
    /// The trees, those with the longest stops first.
    pub trees: Vec<PauseTree>,
    /// Each one that was kept.
    #[serde(skip)]
    pub log: Vec<Pause>,
}

/// What one queue has stopped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PauseTree {
    /// The queue, by its link, as in "leaf 1 to host 3"; or "programs of leaf 1".
    pub root: String,
    /// Orders to stop.
    pub stops: u64,
    /// How long links were stopped, all together.
    pub seconds: f64,
    /// How many links were stopped.
    pub links: usize,
    /// How many switches the farthest order has passed: 1 if only the root's own neighbours were stopped.
    pub depth: usize,
    /// The links that were stopped, and by what; those that were stopped longest first.
    pub branches: Vec<PauseBranch>,
}

/// A link that was stopped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PauseBranch {
    /// The link whose near end had to stop.
    pub link: String,
    /// The queue in which its packets waited: the root, or the link of another branch.
    pub by: String,
    /// How many switches the order has passed.
    pub depth: usize,
    /// Orders to stop.
    pub stops: u64,
    /// How long it was stopped.
    pub seconds: f64,
}

/// What fills up: a queue by its link, or the programs of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Full {
    Queue(LinkId),
    Programs(NodeId),
}

impl Full {
    fn of(graph: &Graph, pause: &Pause) -> Full {
        match pause.cause {
            Cause::Queue(link) => Full::Queue(link),
            Cause::Programs => Full::Programs(graph.ends(pause.link).1),
        }
    }

    fn name(self, graph: &Graph) -> String {
        match self {
            Full::Queue(link) => graph.link_name(link),
            Full::Programs(node) => format!("programs of {}", graph.name(node)),
        }
    }
}

/// Those of a run; `None` if the run keeps none.
pub(super) fn report(simulation: &Simulation) -> Option<PausesReport> {
    let (log, left_out) = simulation.fabric.pause_log()?.until(simulation.fabric.now);
    let trees = trees(simulation.graph(), &log);
    let (stops, roots) = (log.len() as u64 + left_out, trees.len());
    Some(PausesReport { stops, left_out, roots, trees: trees.into_iter().take(MOST_TREES).collect(), log })
}

/// For each PAUSE, in the order of time, the root of its tree and its depth there. It has spread if the queue that filled up
/// was stopped itself at some time while it did: since the last PAUSE of the same link.
fn spread(graph: &Graph, log: &[Pause]) -> Vec<(Full, usize)> {
    let mut of_link: BTreeMap<LinkId, Vec<usize>> = BTreeMap::new();
    let mut found: Vec<(Full, usize)> = Vec::with_capacity(log.len());
    for (index, pause) in log.iter().enumerate() {
        let last_of = |link| of_link.get(link).into_iter().flatten().rev().copied();
        let since = last_of(&pause.link).next().map_or(Time::ZERO, |last| log[last].until);
        let parent = match &pause.cause {
            Cause::Queue(link) => {
                last_of(link).find(|&stop| log[stop].from <= pause.ordered).filter(|&stop| log[stop].until > since)
            }
            Cause::Programs => None,
        };
        found.push(parent.map_or((Full::of(graph, pause), 1), |stop| (found[stop].0, found[stop].1 + 1)));
        of_link.entry(pause.link).or_default().push(index);
    }
    found
}

/// What one queue has stopped on one link, in one tree.
#[derive(Default)]
struct Stops {
    count: u64,
    time: Span,
    depth: usize,
}

type Branches = BTreeMap<(LinkId, Full), Stops>;

fn trees(graph: &Graph, log: &[Pause]) -> Vec<PauseTree> {
    let mut by_root: BTreeMap<Full, Branches> = BTreeMap::new();
    for (pause, (root, depth)) in log.iter().zip(spread(graph, log)) {
        let stops = by_root.entry(root).or_default().entry((pause.link, Full::of(graph, pause))).or_default();
        stops.count += 1;
        stops.time = stops.time + pause.until.since(pause.from);
        stops.depth = stops.depth.max(depth);
    }
    let total = |branches: &Branches| branches.values().fold(Span::ZERO, |sum, stops| sum + stops.time);
    let mut trees: Vec<(Full, Branches)> = by_root.into_iter().collect();
    trees.sort_by_key(|(_, branches)| Reverse(total(branches)));
    trees.into_iter().map(|(root, branches)| tree(graph, root, &branches, total(&branches))).collect()
}

fn tree(graph: &Graph, root: Full, branches: &Branches, total: Span) -> PauseTree {
    let links: BTreeSet<LinkId> = branches.keys().map(|(link, _)| *link).collect();
    let mut longest: Vec<_> = branches.iter().collect();
    longest.sort_by_key(|(_, stops)| Reverse(stops.time));
    let branch = |((link, by), stops): (&(LinkId, Full), &Stops)| PauseBranch {
        link: graph.link_name(*link),
        by: by.name(graph),
        depth: stops.depth,
        stops: stops.count,
        seconds: stops.time.as_secs_f64(),
    };
    PauseTree {
        root: root.name(graph),
        stops: branches.values().map(|stops| stops.count).sum(),
        seconds: total.as_secs_f64(),
        links: links.len(),
        depth: branches.values().map(|stops| stops.depth).max().unwrap_or(0),
        branches: longest.into_iter().take(MOST_BRANCHES).map(branch).collect(),
    }
}

impl fmt::Display for PausesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stops, roots) = (number(self.stops, "PAUSE", "PAUSEs"), number(self.roots as u64, "queue", "queues"));
        writeln!(f, "\n{stops} spread from {roots}")?;
        for tree in self.trees.iter().take(TREES_SHOWN) {
            let (links, depth) =
                (number(tree.links as u64, "link", "links"), number(tree.depth as u64, "switch", "switches"));
            writeln!(f, "  {}: {} of {links}, {} in all, through {depth}", tree.root, tree.stops, time(tree.seconds))?;
            for branch in tree.branches.iter().take(BRANCHES_SHOWN) {
                let PauseBranch { link, by, stops, seconds, .. } = branch;
                writeln!(f, "    {link:<26}{stops:>8}{:>12}  by {by}", time(*seconds))?;
            }
        }
        match self.left_out {
            0 => Ok(()),
            left_out => writeln!(f, "  WITHOUT     {left_out} that were too many to keep"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn graph(shape: &str) -> Graph {
        Config::parse(&format!("[network]\n{shape}\n")).unwrap().network.build().unwrap()
    }

    fn link(graph: &Graph, name: &str) -> LinkId {
        (0..2 * graph.edges().len() as u32).map(LinkId).find(|&link| graph.link_name(link) == name).unwrap()
    }

    /// A link stopped from ten after the order on.
    fn stop(graph: &Graph, name: &str, ordered: u64, until: u64, by: &str) -> Pause {
        let cause = Cause::Queue(link(graph, by));
        Pause { link: link(graph, name), ordered: Time(ordered), from: Time(ordered + 10), until: Time(until), cause }
    }

    #[test]
    fn a_pause_is_in_the_tree_of_the_queue_that_filled_up_first() {
        let graph = graph("leaf_spine = { leaves = 2, spines = 1, hosts_per_leaf = 2 }");
        let log = [
            stop(&graph, "spine 0 to leaf 1", 100, 500, "leaf 1 to host 3"),
            stop(&graph, "leaf 0 to spine 0", 200, 340, "spine 0 to leaf 1"),
            stop(&graph, "host 0 to leaf 0", 300, 350, "leaf 0 to spine 0"),
            // The link to the spine was not stopped again since the host's last PAUSE: its own queue is what filled up.
            stop(&graph, "host 0 to leaf 0", 450, 470, "leaf 0 to spine 0"),
        ];
        let trees = trees(&graph, &log);
        let roots: Vec<_> = trees.iter().map(|tree| (&tree.root[..], tree.stops, tree.depth)).collect();
        assert_eq!(roots, [("leaf 1 to host 3", 3, 3), ("leaf 0 to spine 0", 1, 1)]);
        let branches: Vec<_> = trees[0].branches.iter().map(|it| (&it.link[..], &it.by[..], it.depth)).collect();
        let expected = [
            ("spine 0 to leaf 1", "leaf 1 to host 3", 1),
            ("leaf 0 to spine 0", "spine 0 to leaf 1", 2),
            ("host 0 to leaf 0", "leaf 0 to spine 0", 3),
        ];
        assert_eq!(branches, expected);
        assert_eq!(trees[0].seconds, 560e-12);
    }

    #[test]
    fn a_tree_has_some_branches_however_many_there_are() {
        let graph = graph("star = { hosts = 40 }");
        let from = |host: u32| format!("host {host} to switch 0");
        let log: Vec<Pause> = (1..40).map(|host| stop(&graph, &from(host), 0, 20, "switch 0 to host 0")).collect();
        let trees = trees(&graph, &log);
        assert_eq!((trees.len(), trees[0].links, trees[0].branches.len()), (1, 39, MOST_BRANCHES));
    }
}
