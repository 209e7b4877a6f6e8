//! ATP (Lao et al., NSDI 2021): one memory of aggregators for all jobs, and servers for blocks that find no room in it.
//!
//! The machines are those of [`crate::aggregation::best_effort`], where results are the only acknowledgements; the
//! controller is [`crate::congestion::aimd`]. `docs/protocols/atp.md` goes through what is public of the protocol.

mod protocol;

pub use protocol::PROTOCOL;
