//! Ring allreduce: host-based reduce-scatter and all-gather in `2(n-1)` steps, over UDP that loses packets.
//!
//! Start with [`host::RingHost`], the machine. [`layout`] cuts the tensor, [`running`] is the algorithm on one
//! collective, [`link`](crate::reliability::link) is the reliable link between neighbours, [`watch`] finds the rank
//! that is silent, and [`wire`] has the headers. `docs/protocols/ring.md` states steps, bytes and every field.

mod host;
mod layout;
mod protocol;
mod running;
mod watch;
pub mod wire;

use host::RingHost;
pub use layout::Layout;
pub use protocol::PROTOCOL;
