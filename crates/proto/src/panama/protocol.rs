//! PANAMA as a value of the registry.

use super::{Panama, PanamaHost, options, partial, switch, wire};
use crate::aggregation::reference::reference;
use crate::contract::numbers::{Encoding, Numbers};
use crate::contract::options::Options;
use crate::contract::protocol::{Placement, Protocol, Refusal};
use crate::contract::tensor::Spec;
use crate::contract::values::Values;

/// PANAMA (Gebara et al., MLSys 2021): accelerators in the switches of one or several trees.
pub static PROTOCOL: Protocol = Protocol {
    code: 5,
    name: "panama",
    about: "accelerators in the switches sum floats, over several trees with windows of their own",
    header_len: wire::HEADER_LEN,
    placement: Placement::Trees,
    passes_results_on: false,
    spares_others: false,
    options: options::SET,
    numbers: |_| Numbers::Float,
    can,
    can_sparse: None,
    memory: switch::memory,
    host: |values, config| Box::new(PanamaHost::new(values, config)),
    switch: Some(|values, config| Box::new(Panama::new(values, config))),
    resizes: true,
    replants: true,
    recompute: Some(reference),
    shared: None,
    server: None,
    describe: wire::describe,
    tree_of: wire::tree_of,
};

/// Accepts every collective that an adder can combine as it is. Where ranks may be left out, only averages of floats:
/// other operators would give a result that nobody asked for.
fn can(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    let refused = |why, instead| Err(Refusal { protocol: "panama", spec: *spec, why, instead });
    if Encoding::new(Values::Elements, Numbers::Float, spec).is_none() {
        return refused("", "band, bor and bxor are for integers");
    }
    if options::Quorum::of(options).is_some() && !partial::may_lack_ranks(spec) && spec.elements > 0 {
        let why = " of some of the ranks";
        return refused(
            why,
            "what leaves ranks out is an avg of floats on all ranks; use op=avg, or leave the option partial out",
        );
    }
    Ok(())
}
