//! PANAMA (Gebara et al., MLSys 2021): floats summed in the order of ports, over several trees, each with a window of
//! its own.
//!
//! Start with [`wire`]; then the switch's rule (`switch/heads.rs`, §5), the recovery from losses
//! (`switch/recovery.rs`), and the worker: [`host`], whose window (`congestion/rank_synchronous`) is the paper's
//! figure 5, mended.
//! `docs/protocols/panama.md` goes through the paper section by section.

mod host;
mod options;
mod switch;
pub mod wire;

use crate::aggregation::reference;
use crate::contract::options::Options;
use crate::contract::protocol::{Placement, Protocol, Refusal, check_meaning};
use crate::contract::tensor::Spec;

pub use host::PanamaHost;
pub use switch::Panama;

/// PANAMA (Gebara et al., MLSys 2021): accelerators in the switches of one or several trees.
pub static PROTOCOL: Protocol = Protocol {
    code: 5,
    name: "panama",
    about: "accelerators in the switches sum floats, over several trees with windows of their own",
    header_len: wire::HEADER_LEN,
    placement: Placement::Trees,
    options: options::SET,
    check,
    memory: switch::memory,
    host: |values, config| Box::new(PanamaHost::new(values, config)),
    switch: Some(|values, config| Box::new(Panama::new(values, config))),
    resizes: true,
    survives_tree_loss: true,
    recompute: Some(reference),
    describe: wire::describe,
    tree_of: wire::tree_of,
    ..Protocol::BASE
};

/// Accepts every collective that an adder can combine as it is. Where ranks may be left out, only averages of floats:
/// other operators would give a result that nobody asked for.
fn check(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    check_meaning("panama", spec)?;
    if options::Quorum::of(options).is_some() && !options::may_lack_ranks(spec) && spec.elements > 0 {
        let why = " of some of the ranks";
        let instead =
            "what leaves ranks out is an avg of floats on all ranks; use op=avg, or leave the option partial out";
        return Err(Refusal { protocol: "panama", spec: *spec, why, instead });
    }
    Ok(())
}
