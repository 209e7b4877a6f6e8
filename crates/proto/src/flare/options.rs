//! What a job's members may choose.

use std::sync::Arc;

use super::design::{Choice, Design, Selection};
use super::sparse::layout as sparse;
use crate::aggregation::slots::host::SendWindow;
use crate::contract::numbers::NarrowBlocks;
use crate::contract::operator::{Needs, Operator, Operators};
use crate::contract::options::{Kind, OptionSet, OptionSpec, Options};
use crate::contract::sum_tree::SumOrder;

const DESIGN: &str = "design";
const SELECTION: &str = "selection";
const REPRODUCIBLE: &str = "reproducible";
const STAGGER: &str = "stagger";

/// The options of the protocol.
pub const SET: OptionSet = OptionSet {
    together,
    sparse: Some(sparse::of_density),
    packets_of_a_result: sparse::packets_of_a_result,
    own: Some(of_operators),
    order,
    simulated: &[SendWindow::SIMULATED],
    ..OptionSet::new(
        "flare",
        &[
            OptionSpec {
                name: DESIGN,
                kind: Kind::Choice(&[
                    "auto", "single", "multi:2", "multi:3", "multi:4", "multi:5", "multi:6", "multi:7", "multi:8",
                    "tree",
                ]),
                default: "auto",
                help: "a block's packets meet in one buffer, in several, or along a tree; auto goes by the tensor's size",
            },
            OptionSpec {
                name: SELECTION,
                kind: Kind::Choice(&["model", "printed"]),
                default: "model",
                help: "auto chooses as the paper's model says, or as section 6.4 prints, with 2 and 4 buffers exchanged",
            },
            OptionSpec {
                name: REPRODUCIBLE,
                kind: Kind::Choice(&["off", "tree", "ranks"]),
                default: "off",
                help: "the same bits for the same inputs whatever comes first: on the same tree of switches, or on any",
            },
            OptionSpec {
                name: STAGGER,
                kind: Kind::Flag,
                default: "false",
                help: "each rank sends its blocks in an order of its own, so that those of one block come apart in time",
            },
            NarrowBlocks::OPTION,
            Operators::OPTION,
            SendWindow::OPTION,
            sparse::OPTIONS[0],
            sparse::OPTIONS[1],
            sparse::OPTIONS[2],
            sparse::OPTIONS[3],
            sparse::OPTIONS[4],
        ],
    )
};

/// The default: the order that the job's own operators need.
fn of_operators(operators: &[Arc<dyn Operator>]) -> Vec<(&'static str, String)> {
    let hashes: Vec<String> = operators.iter().map(|operator| operator.hash().to_string()).collect();
    let order = match operators.iter().map(|operator| operator.needs()).max() {
        None | Some(Needs::Nothing) => "off",
        Some(Needs::Arrangement) => "tree",
        Some(Needs::RankOrder) => "ranks",
    };
    vec![(Operators::OPTION.name, hashes.join(",")), (REPRODUCIBLE, order.to_owned())]
}

fn order(options: &Options) -> SumOrder {
    match options.choice(REPRODUCIBLE) {
        "tree" => SumOrder::Switches,
        "ranks" => SumOrder::Ranks,
        _ => SumOrder::Arrival,
    }
}

/// The choice that a job lacks to apply one of its own operators, if it lacks one.
pub fn lacks_order(options: &Options, needs: Needs) -> Option<&'static str> {
    match (options.choice(REPRODUCIBLE), needs) {
        ("ranks", _) | (_, Needs::Nothing) | ("tree", Needs::Arrangement) => None,
        (_, Needs::Arrangement) => Some("choose reproducible=tree or ranks, as the operator is not associative"),
        (_, Needs::RankOrder) => Some("choose reproducible=ranks, as the operator does not commute"),
    }
}

fn together(options: &Options) -> Result<(), String> {
    let design = options.choice(DESIGN);
    if options.choice(REPRODUCIBLE) != "off" && !matches!(design, "auto" | "tree") {
        return Err(format!("sums in the design {design} depend on arrival: leave reproducible or design out"));
    }
    if sparse::Choices::of(options).is_none() {
        return Ok(());
    }
    if !options.operators().is_empty() {
        return Err("own operators are for dense tensors: leave operators or sparse out".to_owned());
    }
    if options.choice(REPRODUCIBLE) != "off" {
        return Err("sums of sparse tensors depend on arrival: leave reproducible or sparse out".to_owned());
    }
    if !matches!(design, "auto" | "single") || options.flag(STAGGER) {
        return Err(
            "sums of sparse tensors have one buffer and one order of sending: leave design and stagger out, or \
                    sparse"
                .to_owned(),
        );
    }
    Ok(())
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choices {
    /// Which design sums each collective.
    pub design: Choice,
    /// Sums follow one tree over all ranks, however the ranks are spread over switches.
    pub over_ranks: bool,
    /// Each host sends its blocks in an order of its own.
    pub stagger: bool,
}

impl Choices {
    /// Reads a job's options.
    pub fn of(options: &Options) -> Choices {
        let selection = if options.choice(SELECTION) == "printed" { Selection::Printed } else { Selection::Model };
        let design = match (options.choice(REPRODUCIBLE), options.choice(DESIGN)) {
            ("tree" | "ranks", _) | (_, "tree") => Choice::Always(Design::Tree),
            (_, "single") => Choice::Always(Design::Single),
            (_, word) => match word.strip_prefix("multi:").and_then(|buffers| buffers.parse().ok()) {
                Some(buffers) => Choice::Always(Design::Multi(buffers)),
                None => Choice::BySize(selection),
            },
        };
        let over_ranks = options.choice(REPRODUCIBLE) == "ranks";
        Choices { design, over_ranks, stagger: options.flag(STAGGER) }
    }
}
