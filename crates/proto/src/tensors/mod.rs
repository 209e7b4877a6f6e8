//! The tensors that drivers hand to machines: real elements in memory, dense or sparse; fingerprints that stand for
//! either; and real elements whose results are known beforehand.

mod checked;
mod elements;
mod fingerprint;
mod ledger;
mod sparse;
mod sparse_fingerprint;

pub use checked::CheckedBytes;
pub use elements::{ElementTensor, InPlaceStorage, Operands, Storage, VecStorage};
pub use fingerprint::{FingerprintTensor, Roster, Verification};
pub use sparse::{SparseElements, SparseError, SparseResult};
pub use sparse_fingerprint::{SparseDraw, SparseFingerprint};
