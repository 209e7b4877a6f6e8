//! PA-ATP (2024): ATP whose congestion control does not wait for stragglers, and whose leaders make way for them.
//!
//! Only the control of congestion is asynchronous. As always, a sum contains the same block of every rank: nothing is
//! stale. The machines are those of [`crate::aggregation::best_effort`]; a worker's two windows are
//! [`crate::congestion::progress_aware`] (CWD) and [`crate::congestion::lead_limit`] (AWD).
//! `docs/protocols/pa-atp.md` goes through the paper section by section.

mod protocol;

pub use protocol::{PROTOCOL, RULES};
