//! SparCML (Renggli et al., SC 2019): hosts sum sparse streams for each other, and a stream becomes dense where that is
//! shorter.
//!
//! It is the host-based peer of sparse sums in the network, as the ring is of dense sums. Start with [`plan`], the
//! three algorithms as steps: which rank sends what to which. [`chunk`] is a stream of a chunk of the indices, or a
//! dense tensor's chunk as it grows; [`codec`] and [`message`] turn streams into packets and back.
//! [`running`] is one collective on one rank, and [`host::SparcmlHost`] the machine, which has a reliable
//! [`link`](crate::reliability::link) to each rank that it exchanges packets with. `docs/protocols/sparcml.md` states
//! steps, bytes and every field.

pub mod chunk;
pub mod codec;
pub mod host;
pub mod message;
pub mod plan;
mod protocol;
pub mod running;
pub mod wire;

pub use host::SparcmlHost;
pub use protocol::PROTOCOL;
