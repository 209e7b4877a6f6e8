//! Sparse tensors (§7): blocks by position, elements as index and value, and sums that grow on their way.
//!
//! Start with [`layout`] (blocks, and what a packet of pairs holds) and [`wire`]; then [`shards`], the stream of
//! packets that a block becomes, and the [`block`] of a switch: a hash table that spills, or an array.
//! `docs/protocols/flare.md` has the rules.

mod block;
mod host;
pub(super) mod layout;
mod shards;
pub(super) mod switch;
pub mod wire;

pub use self::host::SparseHost;
pub use self::switch::SparseSwitch;
