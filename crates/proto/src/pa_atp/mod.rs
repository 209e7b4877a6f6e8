//! PA-ATP (2024): ATP whose congestion control does not wait for stragglers, and whose leaders make way for them.
//!
//! Only the control of congestion is asynchronous. Sums are of all ranks' blocks of one number, as ever: nothing is stale.
//! The machines are those of [`crate::parts::best_effort`]; here are the two windows of a worker ([`windows`]).
//! `docs/protocols/pa-atp.md` goes through the paper section by section.

mod protocol;
pub mod windows;

pub use protocol::{PROTOCOL, RULES};
