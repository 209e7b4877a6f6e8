//! The tensors that drivers hand to machines: real elements in memory, or fingerprints that stand for them.

mod coverage;
mod elements;
mod fingerprint;
mod ledger;

pub use elements::{ElementTensor, InPlaceStorage, Operands, Storage, VecStorage};
pub use fingerprint::{FingerprintTensor, Roster, Verification};
