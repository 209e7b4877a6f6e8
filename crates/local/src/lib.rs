//! Collectives of ranks that share a host, in memory that they share.
//!
//! From a call to a result: `meet` finds out whether ranks share a host and gives them memory (`memory`, `layout`),
//! `group` keeps collectives in their order and lends them threads, `machine` takes one rank's steps as `handover` allows
//! them, and `work` and `sum` do what a step says: copy a contribution in, reduce this rank's share, copy results out.
//! `hosts` has groups that span hosts, of which each is one member of a job in the network.

pub mod collective;
mod error;
pub mod group;
pub mod handover;
pub mod hosts;
mod layout;
mod machine;
pub mod meet;
pub mod memory;
mod os;
mod sum;
mod work;

pub use collective::{Description, Kind};
pub use error::LocalError;
pub use group::{Group, Pending};
pub use layout::MAX_RANKS;
pub use memory::Lent;
pub use work::Operands;
