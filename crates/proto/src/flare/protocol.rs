//! Flare as a value of the registry, and its options.

use std::sync::Arc;

use tributary_numeric::{BlockExponent, ReduceOp};

use super::design::{Choice, Design, Selection};
use super::sparse::layout::Choices as SparseChoices;
use super::sparse::layout::{OPTIONS, of_density, packets_of_a_result};
use super::sparse::{self, SparseHost, SparseSwitch};
use super::wire::{self, Order, Says};
use crate::aggregation::ordered::{Arrangement, nodes_needed};
use crate::aggregation::reference;
use crate::aggregation::slots::host::{Epochs, SIMULATED_WINDOW, WINDOW_OPTIONS};
use crate::aggregation::slots::{self, Dialect, SlotHost, SlotSwitch, Word, switch};
use crate::contract::config::{HostConfig, SwitchConfig};
use crate::contract::custom_op::{CustomOp, OrderDependence};
use crate::contract::host::Host;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::{Kind, OptionSet, OptionSpec, Options};
use crate::contract::protocol::{Description, Placement, Protocol, Refusal, ShardShape, check_meaning};
use crate::contract::seal;
use crate::contract::sum_tree::{SumOrder, SumTree};
use crate::contract::switch::Switch;
use crate::contract::tensor::{Primitive, Spec};
use crate::contract::values::Values;
use crate::reliability::slot_lists;

/// Flare (De Sensi et al., SC 2021): every type and operator in the switch, in one switch or in levels,
/// of dense tensors or, where a job is for them, of sparse ones.
pub static PROTOCOL: Protocol = Protocol {
    code: 8,
    name: "flare",
    about: "the switch sums, or a tree of switches, in one of three designs, reproducibly if asked for",
    header_len: wire::HEADER_LEN,
    placement: Placement::Trees,
    rooted_is_unicast: true,
    options: SET,
    numbers: Numbers::chosen,
    check,
    check_sparse: Some(check_sparse),
    memory,
    host: make_host,
    switch: Some(make_switch),
    divides_slots: |options| SparseChoices::of(options).is_none(),
    recompute: Some(reference),
    describe,
    tree_of: |job, packet| slot_lists::tree_of(job, describe(packet).slot),
    ..Protocol::BASE
};

/// Accepts every collective of a dense tensor that has a meaning, in a job of dense tensors.
fn check(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    if SparseChoices::of(options).is_some() {
        let why = " of a dense tensor in a job of sparse ones";
        let instead = "leave the option sparse out, or bring indices and values";
        return Err(Refusal { protocol: "flare", spec: *spec, why, instead });
    }
    if let ReduceOp::Custom(number) = spec.op {
        return check_custom_op(spec, number, options);
    }
    check_meaning("flare", spec)?;
    slots::check("flare", spec, options)
}

/// Accepts the job's custom operators, if the order in which the job applies them suits them.
fn check_custom_op(spec: &Spec, number: u8, options: &Options) -> Result<(), Refusal> {
    let operators = options.operators();
    let refused = |why, instead| Err(Refusal { protocol: "flare", spec: *spec, why, instead });
    let Some(operator) = operators.get(number) else {
        return refused(", which the job does not have", "name the operator when the job is joined");
    };
    if Encoding::of_job(Values::Elements, Numbers::Float, spec, &operators).is_none() {
        return refused("", "bring whole elements of the operator's size, as bytes");
    }
    lacks_order(options, operator.order_dependence()).map_or(Ok(()), |instead| refused(" in any order", instead))
}

/// Accepts every allreduce that has a meaning, in a job of sparse tensors.
fn check_sparse(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    let (why, instead) = match SparseChoices::of(options) {
        None => (" of a sparse tensor in a job of dense ones", "choose sparse=auto"),
        Some(_) if spec.primitive != Primitive::Allreduce => (" of a sparse tensor", "take an allreduce"),
        Some(_) => return check_meaning("flare", spec),
    };
    Err(Refusal { protocol: "flare", spec: *spec, why, instead })
}

fn memory(shape: &ShardShape<'_>) -> u64 {
    match SparseChoices::of(shape.options) {
        Some(choices) => sparse::switch::memory(shape, &choices),
        None => switch::memory::<FlareDialect>(shape),
    }
}

fn make_host(values: Values, config: &HostConfig) -> Box<dyn Host> {
    match SparseChoices::of(&config.job.options) {
        Some(choices) => Box::new(SparseHost::new(values, config, choices)),
        None => Box::new(SlotHost::<FlareDialect>::new(values, config)),
    }
}

fn make_switch(values: Values, config: &SwitchConfig) -> Box<dyn Switch> {
    match SparseChoices::of(&config.job.options) {
        Some(choices) => Box::new(SparseSwitch::new(values, config, choices)),
        None => Box::new(SlotSwitch::<FlareDialect>::new(values, config)),
    }
}

/// Sparse packets have other codes than dense ones.
fn describe(packet: &[u8]) -> Description {
    let dense = wire::describe(packet);
    if dense.kind.is_empty() { sparse::wire::describe(packet) } else { dense }
}

const DESIGN: &str = "design";
const SELECTION: &str = "selection";
const REPRODUCIBLE: &str = "reproducible";
const STAGGER: &str = "stagger";

/// The options of the protocol.
pub const SET: OptionSet = OptionSet {
    together,
    sparse: Some(of_density),
    packets_of_a_result,
    custom_ops: Some(of_operators),
    order,
    simulated: SIMULATED_WINDOW,
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
            Numbers::OPTION,
            Numbers::DOWN,
            NarrowBlocks::OPTION,
            seal::OPTION,
            OptionSpec::CUSTOM_OPS,
            WINDOW_OPTIONS[0],
            WINDOW_OPTIONS[1],
            OPTIONS[0],
            OPTIONS[1],
            OPTIONS[2],
            OPTIONS[3],
            OPTIONS[4],
        ],
    )
};

/// The options of a job with these custom operators: the order that they depend on is the default.
fn of_operators(operators: &[Arc<dyn CustomOp>]) -> Vec<(&'static str, String)> {
    let hashes: Vec<String> = operators.iter().map(|operator| operator.hash().to_string()).collect();
    let order = match operators.iter().map(|operator| operator.order_dependence()).max() {
        None | Some(OrderDependence::Nothing) => "off",
        Some(OrderDependence::Arrangement) => "tree",
        Some(OrderDependence::RankOrder) => "ranks",
    };
    vec![(OptionSpec::CUSTOM_OPS.name, hashes.join(",")), (REPRODUCIBLE, order.to_owned())]
}

fn order(options: &Options) -> SumOrder {
    match options.choice(REPRODUCIBLE) {
        "tree" => SumOrder::Switches,
        "ranks" => SumOrder::Ranks,
        _ => SumOrder::Arrival,
    }
}

/// The choice without which the job cannot apply one of its custom operators, if it lacks one.
pub fn lacks_order(options: &Options, dependence: OrderDependence) -> Option<&'static str> {
    match (options.choice(REPRODUCIBLE), dependence) {
        ("ranks", _) | (_, OrderDependence::Nothing) | ("tree", OrderDependence::Arrangement) => None,
        (_, OrderDependence::Arrangement) => {
            Some("choose reproducible=tree or ranks, as the operator is not associative")
        }
        (_, OrderDependence::RankOrder) => Some("choose reproducible=ranks, as the operator does not commute"),
    }
}

fn together(options: &Options) -> Result<(), String> {
    let design = options.choice(DESIGN);
    if options.choice(REPRODUCIBLE) != "off" && !matches!(design, "auto" | "tree") {
        return Err(format!("sums in the design {design} depend on arrival: leave reproducible or design out"));
    }
    Numbers::check_together(options)?;
    if Numbers::chosen(options) != Numbers::Float && options.choice(REPRODUCIBLE) != "off" {
        return Err("scaled sums have the same bits in any order: leave reproducible or numbers out".to_owned());
    }
    if SparseChoices::of(options).is_none() {
        return Ok(());
    }
    if !options.operators().is_empty() {
        return Err("custom operators are for dense tensors: leave operators or sparse out".to_owned());
    }
    if Numbers::chosen(options) != Numbers::Float {
        return Err("elements of sparse tensors are not scaled: leave numbers or sparse out".to_owned());
    }
    if seal::is_chosen(options) {
        return Err("packets of sparse tensors have no checksum: leave integrity or sparse out".to_owned());
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

/// Slots whose blocks are combined in the designs of §6; values of every type and operator travel as they are, unless
/// the job scales floats.
#[derive(Clone, Copy, Hash)]
pub struct FlareDialect {
    choices: Choices,
    numbers: Numbers,
    narrow: NarrowBlocks,
    /// The order of a sum along one tree over all ranks, if the job has such a tree over several switches.
    over_ranks: Option<Order>,
}

impl Dialect for FlareDialect {
    type Word = Says;

    fn of(options: &Options, levels: bool, world_size: u16) -> FlareDialect {
        let choices = Choices::of(options);
        // In one switch the tree over the switch's children is the tree over ranks.
        let over_ranks = (choices.over_ranks && levels).then(|| Order::of(&SumTree::star(world_size)));
        let (numbers, narrow) = (Numbers::of_job(options, world_size), NarrowBlocks::chosen(options, levels));
        FlareDialect { choices, numbers, narrow, over_ranks }
    }

    fn numbers(&self) -> Numbers {
        self.numbers
    }

    fn narrow(&self) -> NarrowBlocks {
        self.narrow
    }

    fn width(&self, children: usize, world_size: u16) -> usize {
        match self.over_ranks {
            Some(_) => nodes_needed(world_size.into()),
            None => self.choices.design.buffers(children),
        }
    }

    fn is_over_ranks(&self) -> bool {
        self.over_ranks.is_some()
    }

    /// The design's arrangement, for every type and operator: integers in a tree take the tree's buffers too.
    fn arrangement(&self, spec: &Spec, _encoding: &Encoding, children: usize) -> Arrangement {
        match self.over_ranks {
            Some(_) => Arrangement::Forest,
            None => self.choices.design.design(spec).arrangement(children),
        }
    }

    fn says(&self, host: &HostConfig, kind: wire::Kind, exponent: impl Fn(u64) -> Option<BlockExponent>) -> Says {
        match (self.numbers, kind) {
            (Numbers::Float, wire::Kind::Update) => Says::ordered(Order::of_rank(host.rank)),
            (Numbers::Float, _) => Says::NOTHING,
            _ => Says::scaled(self.hint(kind, exponent)),
        }
    }

    fn epochs(&self, host: &HostConfig) -> Option<Epochs> {
        self.choices.stagger.then(|| Epochs::new(host.job.slots, host.rank.0, host.job.world_size))
    }

    fn concluded(&self, spec: &Spec, joined: Says, of_all: bool) -> Says {
        let order = match (self.over_ranks, self.choices.design.design(spec)) {
            (Some(order), _) if of_all => order,
            // The parts are several nodes of the tree, which together have no name.
            (Some(_), _) | (_, Design::Single | Design::Multi(_)) => Order::NONE,
            (None, Design::Tree) => Order::of_switch(joined.order()),
        };
        joined.concluded(order)
    }
}
