//! The faults of a file, in words and with their times: for reports, and as marks in figures over time.

use serde::Serialize;

use crate::config::{Config, FaultSection, LinkSet, Links, NodeName};

/// One `[[fault]]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultReport {
    /// "switch 4 dead", "core links: loss 0.1 %".
    pub what: String,
    /// When it begins, in seconds.
    pub at: f64,
    /// When it ends; `None` if it never ends.
    pub until: Option<f64>,
}

/// The faults of a file, in its order.
pub(super) fn reports(config: &Config) -> Vec<FaultReport> {
    let report = |fault: &FaultSection| FaultReport {
        what: words(fault),
        at: fault.at.0.as_secs_f64(),
        until: fault.until.map(|until| until.0.as_secs_f64()),
    };
    config.faults.iter().map(report).collect()
}

fn words(fault: &FaultSection) -> String {
    let dead = fault.dead.map(|node| format!("{} dead", String::from(node)));
    let shares = [
        ("loss", fault.loss),
        ("corruption", fault.corruption),
        ("duplication", fault.duplication),
        ("reordering", fault.reordering),
    ];
    let shares = shares.into_iter().filter(|(_, share)| share.0 > 0.0).map(|(name, share)| format!("{name} {share}"));
    let down = match (fault.flap, fault.down) {
        (Some(period), _) => Some(format!("flap every {period}")),
        (None, true) => Some("down".to_string()),
        (None, false) => None,
    };
    let effects: Vec<String> = shares.chain(down).collect();
    let links = fault.links.as_ref().filter(|_| !effects.is_empty());
    let links = links.map(|links| format!("{}: {}", name(links), effects.join(", ")));
    dead.into_iter().chain(links).collect::<Vec<_>>().join("; ")
}

fn name(links: &Links) -> String {
    let node_name = |node: NodeName| String::from(node);
    match links {
        Links::Set(LinkSet::All) => "all links".to_string(),
        Links::Set(LinkSet::Hosts) => "hosts' links".to_string(),
        Links::Set(LinkSet::Core) => "core links".to_string(),
        Links::Between(pairs) => match &pairs[..] {
            [[a, b]] => format!("{} to {}", node_name(*a), node_name(*b)),
            pairs => format!("{} links", pairs.len()),
        },
    }
}
