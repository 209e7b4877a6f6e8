//! ATP (Lao et al., NSDI 2021): one memory of aggregators for all jobs, and servers for what it has no room for.
//!
//! The machines are those of [`crate::parts::best_effort`]; here is what is ATP's own: a window that results clock alone
//! ([`window`]). `docs/protocols/atp.md` goes through what is public of the protocol.

mod protocol;
pub mod window;

pub use protocol::PROTOCOL;
