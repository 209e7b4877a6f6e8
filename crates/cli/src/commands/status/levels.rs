//! `tributary status --tree`: the switches above and below one, queried one after another and drawn as one tree.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::Serialize;
use tributary_net::client::ClientError;
use tributary_net::status::{JobStatus, ShardStatus, SwitchStatus};

use crate::output::list;

/// The most levels above and below a switch, whatever switches say of each other.
const MOST_LEVELS: usize = 16;

/// A switch with those below it.
#[derive(Debug, Serialize)]
pub struct Level {
    /// Its control API.
    pub switch: SocketAddr,
    /// What it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SwitchStatus>,
    /// Why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The switches below it that have ranks of its jobs, by address.
    pub below: Vec<Level>,
}

/// Asks all switches of the tree that a switch belongs to, from the root on: with `ask` the switch itself and those above
/// it, which its operator has chosen, and with `ask_child` those that join. An error is that of the switch itself; others
/// are in the tree.
pub fn of(
    switch: SocketAddr,
    ask: impl Fn(SocketAddr) -> Result<SwitchStatus, ClientError>,
    ask_child: impl Fn(SocketAddr) -> Result<SwitchStatus, ClientError>,
) -> Result<Level, ClientError> {
    let (mut root, mut status) = (switch, ask(switch)?);
    let mut answers = BTreeMap::new();
    for _ in 0..MOST_LEVELS {
        let Some(parent) = status.switch.parent.filter(|parent| !answers.contains_key(parent)) else { break };
        // A parent that does not answer leaves its child at the top: the child says why it is not healthy.
        let Ok(of_parent) = ask(parent) else { break };
        answers.insert(root, Some(status));
        (root, status) = (parent, of_parent);
    }
    answers.insert(root, None);
    Ok(level(root, Ok(status), &ask_child, &mut answers, MOST_LEVELS))
}

/// `answers` has the switches that have answered, and `None` where they are in the tree already.
fn level(
    switch: SocketAddr,
    status: Result<SwitchStatus, ClientError>,
    ask_child: &impl Fn(SocketAddr) -> Result<SwitchStatus, ClientError>,
    answers: &mut BTreeMap<SocketAddr, Option<SwitchStatus>>,
    deep: usize,
) -> Level {
    let children = status.iter().flat_map(|status| &status.jobs).flat_map(|job| &job.switches);
    let children: BTreeSet<SocketAddr> = children.filter_map(|child| child.addr).filter(|_| deep > 0).collect();
    let mut below = Vec::new();
    for child in children {
        let status = match answers.insert(child, None) {
            None => ask_child(child),
            Some(Some(status)) => Ok(status),
            Some(None) => continue,
        };
        below.push(level(child, status, ask_child, answers, deep - 1));
    }
    let error = status.as_ref().err().map(ToString::to_string);
    Level { switch, status: status.ok(), error, below }
}

/// The lines of a tree.
pub fn draw(root: &Level) -> Vec<String> {
    let mut lines = vec![about(root)];
    draw_below(root, "", &mut lines);
    lines
}

fn draw_below(level: &Level, indent: &str, lines: &mut Vec<String>) {
    for (number, child) in level.below.iter().enumerate() {
        let is_last = number + 1 == level.below.len();
        let (branch, stem) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(format!("{indent}{branch}{}{}", about(child), ranks(level, child.switch)));
        draw_below(child, &format!("{indent}{stem}"), lines);
    }
}

fn about(Level { switch, status, error, .. }: &Level) -> String {
    let Some(SwitchStatus { switch: own, jobs }) = status else {
        return format!("switch {switch} DOES NOT ANSWER: {}", error.as_deref().unwrap_or_default());
    };
    // The sum of no floats would be -0.0.
    let sum = |figure: fn(&ShardStatus) -> f64| own.shards.iter().fold(0.0, |sum, shard| sum + figure(shard));
    let unhealthy = own.parent_failure.as_ref().map(|why| format!(", NOT HEALTHY: {why}")).unwrap_or_default();
    let (rx, tx) = (sum(|shard| shard.rx_gbps), sum(|shard| shard.tx_gbps));
    let jobs = if jobs.len() == 1 { "1 job".to_owned() } else { format!("{} jobs", jobs.len()) };
    format!("switch {switch}: {jobs}, in {rx:.2} Gbit/s, out {tx:.2} Gbit/s{unhealthy}")
}

/// The ranks of each job that are below a child.
fn ranks(parent: &Level, child: SocketAddr) -> String {
    let mut of_jobs: BTreeMap<&str, &[u16]> = BTreeMap::new();
    let jobs: &[JobStatus] = parent.status.as_ref().map_or(&[], |status| &status.jobs);
    for (job, below) in jobs.iter().flat_map(|job| job.switches.iter().map(move |below| (job, below))) {
        if below.addr == Some(child) {
            of_jobs.insert(&job.name, &below.ranks);
        }
    }
    of_jobs.into_iter().map(|(job, ranks)| format!("; {job}: ranks {}", list(ranks))).collect()
}

#[cfg(test)]
mod tests {
    use tributary_net::status::ChildSwitchStatus;

    use super::*;
    use crate::commands::status::testing;

    fn addr(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    /// A root at port 1, whose leaves are at 2 and 3; the second does not answer.
    fn ask(switch: SocketAddr) -> Result<SwitchStatus, ClientError> {
        let parent = match switch.port() {
            1 => None,
            2 => Some(addr(1)),
            _ => return Err(ClientError::Unreachable("nothing listens there".into())),
        };
        let below = |(port, ranks): (u16, [u16; 2])| ChildSwitchStatus {
            addr: Some(addr(port)),
            ranks: ranks.to_vec(),
            state: "present".to_owned(),
            last_seen_s_ago: None,
        };
        let below = [(2, [0, 1]), (3, [2, 3])].map(below).into_iter().filter(|_| parent.is_none());
        let mut status = testing::status(vec![JobStatus { switches: below.collect(), ..testing::job("sum", 4) }]);
        (status.switch.listen, status.switch.parent) = (switch, parent);
        Ok(status)
    }

    #[test]
    fn a_tree_is_the_same_from_its_root_and_from_a_leaf() {
        for from in [1, 2] {
            let lines = draw(&of(addr(from), ask, ask).unwrap());
            assert_eq!(
                lines,
                [
                    "switch 10.0.0.1:1: 1 job, in 0.00 Gbit/s, out 0.00 Gbit/s",
                    "├─ switch 10.0.0.1:2: 1 job, in 0.00 Gbit/s, out 0.00 Gbit/s; sum: ranks 0, 1",
                    "└─ switch 10.0.0.1:3 DOES NOT ANSWER: nothing listens there; sum: ranks 2, 3",
                ]
            );
        }
        assert!(of(addr(3), ask, ask).is_err(), "the switch itself must answer");
    }

    /// Who may join as a switch names its own address, and would be shown a token.
    #[test]
    fn children_are_queried_in_another_way_than_the_switch_and_its_parents() {
        let trusted = |switch: SocketAddr| match switch.port() {
            3 => panic!("it is a child"),
            _ => ask(switch),
        };
        let tree = of(addr(2), trusted, |child| {
            assert_eq!(child.port(), 3, "the others have answered");
            ask(child)
        });
        assert_eq!(tree.unwrap().below.len(), 2);
    }

    /// Two switches that call each other parent and child.
    #[test]
    fn switches_that_lie_about_each_other_are_queried_once() {
        let circle = |switch: SocketAddr| {
            let mut status = ask(addr(1))?;
            let other = addr(3 - switch.port());
            status.switch.parent = Some(other);
            status.jobs[0].switches.truncate(1);
            status.jobs[0].switches[0].addr = Some(other);
            Ok(status)
        };
        let tree = of(addr(1), circle, circle).unwrap();
        assert_eq!(draw(&tree).len(), 2);
    }
}
