//! From a `[[step]]` to a graph with its jobs.

mod graph;
mod install;
mod shapes;

use std::collections::BTreeMap;

use tributary_proto::contract::time::Span;

pub(super) use self::install::install;
use crate::config::{StepCollective, StepKind, StepSection};

/// A node before it has streams.
#[derive(Clone, Debug, PartialEq)]
struct Draft {
    name: String,
    work: DraftWork,
    /// By number.
    after: Vec<usize>,
    ranks: Option<Vec<u16>>,
}

#[derive(Clone, Debug, PartialEq)]
enum DraftWork {
    Compute(Span),
    Collective { kind: StepCollective, group: String, bytes: u64, root: u16 },
    Send { pairs: Vec<[u16; 2]>, bytes: u64 },
}

/// Groups of ranks by name; each is several groups of different ranks.
struct Groups(BTreeMap<String, Vec<Vec<u16>>>);

impl Groups {
    fn of_all(ranks: u16) -> Groups {
        Groups([(shapes::ALL.to_string(), vec![(0..ranks).collect()])].into())
    }

    fn add(&mut self, name: &str, groups: Vec<Vec<u16>>) {
        self.0.insert(name.to_string(), groups);
    }
}

impl StepCollective {
    /// The name, as torch spells it.
    fn name(self) -> &'static str {
        match self {
            StepCollective::AllReduce => "all_reduce",
            StepCollective::ReduceScatter => "reduce_scatter",
            StepCollective::AllGather => "all_gather",
            StepCollective::Reduce => "reduce",
            StepCollective::Broadcast => "broadcast",
            StepCollective::Barrier => "barrier",
            StepCollective::AllToAll => "all_to_all",
            StepCollective::Send => "send",
        }
    }
}

/// The nodes of a section, and its groups.
fn draft(section: &StepSection, ranks: u16) -> Result<(Vec<Draft>, Groups), String> {
    if section.iterations == 0 {
        return Err("iterations = 0 leaves nothing to do".into());
    }
    let of_graph = !section.nodes.is_empty() || !section.groups.is_empty();
    match section.kind {
        StepKind::Graph if !section.layers.is_empty() => {
            Err("a graph has [[step.node]]; [[step.layer]] is for the other kinds".into())
        }
        StepKind::Graph => graph::draft(section, ranks),
        _ if of_graph => Err("[[step.node]] and groups are for kind = \"graph\"".into()),
        _ => shapes::draft(section, ranks),
    }
}
