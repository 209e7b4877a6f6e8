//! SparCML (Renggli et al., SC 2019): hosts sum sparse streams for each other, and a stream becomes dense where that is
//! shorter.
//!
//! It is the host-based peer of sparse sums in the network, as the ring is of dense sums. Start with [`plan`], the
//! three algorithms as steps: which rank sends what to which. [`chunk`] is a stream of a chunk of the indices, or a
//! dense tensor's chunk as it grows; [`codec`] and [`message`] turn streams into packets and back.
//! [`running`] is one collective on one rank, and [`host::SparcmlHost`] the machine, which has a reliable
//! [`link`](crate::reliability::link) to each rank that it exchanges packets with. `docs/protocols/sparcml.md` states
//! steps, bytes and every field.

mod chunk;
mod codec;
mod host;
mod message;
mod options;
mod plan;
mod running;
pub mod wire;

use self::options::Choices;
use crate::contract::options::Options;
use crate::contract::protocol::{Protocol, Refusal, check_meaning};
use crate::contract::tensor::{Primitive, Spec};

pub use host::SparcmlHost;

/// SparCML (Renggli et al., SC 2019): the peer that sparse sums in the network are measured against.
pub static PROTOCOL: Protocol = Protocol {
    code: 9,
    name: "sparcml",
    about: "the hosts sum sparse tensors in pairs, or each a part of the indices",
    header_len: wire::DATA_LEN,
    options: options::SET,
    check,
    check_sparse: Some(check_sparse),
    host: |values, config| Box::new(SparcmlHost::new(values, config)),
    describe: wire::describe,
    ..Protocol::BASE
};

/// Accepts every collective of a dense tensor that has a meaning, in a job of dense tensors.
fn check(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    if Choices::of(options).is_sparse {
        let why = " of a dense tensor in a job of sparse ones";
        let instead = "leave the option sparse out, or bring indices and values";
        return Err(Refusal { protocol: "sparcml", spec: *spec, why, instead });
    }
    check_meaning("sparcml", spec)
}

/// Accepts every allreduce that has a meaning, in a job of sparse tensors.
fn check_sparse(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    let (why, instead) = match Choices::of(options).is_sparse {
        false => (" of a sparse tensor in a job of dense ones", "choose sparse=true"),
        true if spec.primitive != Primitive::Allreduce => (" of a sparse tensor", "take an allreduce"),
        true => return check_meaning("sparcml", spec),
    };
    Err(Refusal { protocol: "sparcml", spec: *spec, why, instead })
}
