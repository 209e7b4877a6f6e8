//! Flare as a value of the registry.

use tributary_numeric::ReduceOp;

use super::dialect::FlareDialect;
use super::sparse::layout::Choices;
use super::sparse::{SparseHost, SparseSwitch};
use super::{options, sparse, wire};
use crate::aggregation::reference::reference;
use crate::aggregation::slots::{SlotHost, SlotSwitch, switch};
use crate::contract::config::{HostConfig, SwitchConfig};
use crate::contract::host::Host;
use crate::contract::numbers::{Encoding, Numbers};
use crate::contract::options::Options;
use crate::contract::protocol::{Description, Placement, Protocol, Refusal, ShardShape, check_meaning};
use crate::contract::switch::Switch;
use crate::contract::tensor::{Primitive, Spec};
use crate::contract::values::Values;
use crate::reliability::layout;

/// Flare (De Sensi et al., SC 2021): every type and operator in the switch, in one switch or in levels,
/// of dense tensors or, where a job is for them, of sparse ones.
pub static PROTOCOL: Protocol = Protocol {
    code: 8,
    name: "flare",
    about: "the switch sums, or a tree of switches, in one of three designs, reproducibly if asked for",
    header_len: wire::HEADER_LEN,
    placement: Placement::Trees,
    rooted_is_unicast: true,
    options: options::SET,
    check,
    check_sparse: Some(check_sparse),
    memory,
    host: make_host,
    switch: Some(make_switch),
    recompute: Some(reference),
    describe,
    tree_of: |job, packet| layout::tree_of(job, describe(packet).slot),
    ..Protocol::BASE
};

/// Accepts every collective of a dense tensor that has a meaning, in a job of dense tensors.
fn check(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    if Choices::of(options).is_some() {
        let why = " of a dense tensor in a job of sparse ones";
        let instead = "leave the option sparse out, or bring indices and values";
        return Err(Refusal { protocol: "flare", spec: *spec, why, instead });
    }
    if let ReduceOp::Custom(number) = spec.op {
        return check_custom_op(spec, number, options);
    }
    check_meaning("flare", spec)
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
    options::lacks_order(options, operator.order_dependence())
        .map_or(Ok(()), |instead| refused(" in any order", instead))
}

/// Accepts every allreduce that has a meaning, in a job of sparse tensors.
fn check_sparse(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    let (why, instead) = match Choices::of(options) {
        None => (" of a sparse tensor in a job of dense ones", "choose sparse=auto"),
        Some(_) if spec.primitive != Primitive::Allreduce => (" of a sparse tensor", "take an allreduce"),
        Some(_) => return check_meaning("flare", spec),
    };
    Err(Refusal { protocol: "flare", spec: *spec, why, instead })
}

fn memory(shape: &ShardShape<'_>) -> u64 {
    match Choices::of(shape.options) {
        Some(choices) => sparse::switch::memory(shape, &choices),
        None => switch::memory::<FlareDialect>(shape),
    }
}

fn make_host(values: Values, config: &HostConfig) -> Box<dyn Host> {
    match Choices::of(&config.job.options) {
        Some(choices) => Box::new(SparseHost::new(values, config, choices)),
        None => Box::new(SlotHost::<FlareDialect>::new(values, config)),
    }
}

fn make_switch(values: Values, config: &SwitchConfig) -> Box<dyn Switch> {
    match Choices::of(&config.job.options) {
        Some(choices) => Box::new(SparseSwitch::new(values, config, choices)),
        None => Box::new(SlotSwitch::<FlareDialect>::new(values, config)),
    }
}

/// Sparse packets have other codes than dense ones.
fn describe(packet: &[u8]) -> Description {
    let dense = wire::describe(packet);
    if dense.kind.is_empty() { sparse::wire::describe(packet) } else { dense }
}
