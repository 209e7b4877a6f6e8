//! SparCML as a value of the registry.

use super::options::{self, Choices};
use super::{SparcmlHost, wire};
use crate::contract::numbers::Numbers;
use crate::contract::options::Options;
use crate::contract::protocol::{Placement, Protocol, Refusal};
use crate::contract::tensor::{Primitive, Spec};

/// SparCML (Renggli et al., SC 2019): the peer that sparse sums in the network are measured against.
pub static PROTOCOL: Protocol = Protocol {
    code: 9,
    name: "sparcml",
    about: "the hosts sum sparse tensors in pairs, or each a part of the indices",
    header_len: wire::DATA_LEN,
    placement: Placement::Hosts,
    passes_results_on: false,
    spares_others: false,
    options: options::SET,
    numbers: |_| Numbers::Float,
    can,
    can_sparse: Some(can_sparse),
    memory: |_| 0,
    host: |values, config| Box::new(SparcmlHost::new(values, config)),
    switch: None,
    resizes: false,
    replants: false,
    recompute: None,
    shared: None,
    server: None,
    describe: wire::describe,
    tree_of: |_, _| None,
};

/// Accepts every collective of a dense tensor that has a meaning, in a job of dense tensors.
fn can(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    if Choices::of(options).is_sparse {
        let why = " of a dense tensor in a job of sparse ones";
        let instead = "leave the option sparse out, or bring indices and values";
        return Err(Refusal { protocol: "sparcml", spec: *spec, why, instead });
    }
    has_meaning(spec)
}

/// Accepts every allreduce that has a meaning, in a job of sparse tensors.
fn can_sparse(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    let (why, instead) = match Choices::of(options).is_sparse {
        false => (" of a sparse tensor in a job of dense ones", "choose sparse=true"),
        true if spec.primitive != Primitive::Allreduce => (" of a sparse tensor", "take an allreduce"),
        true => return has_meaning(spec),
    };
    Err(Refusal { protocol: "sparcml", spec: *spec, why, instead })
}

fn has_meaning(spec: &Spec) -> Result<(), Refusal> {
    match tributary_numeric::native(spec.dtype, spec.op) {
        Some(_) => Ok(()),
        None => {
            let instead = "band, bor and bxor are for integers";
            Err(Refusal { protocol: "sparcml", spec: *spec, why: "", instead })
        }
    }
}
