//! Flare (De Sensi et al., SC 2021): any type and operator in the switch, in one of three designs, and sums that repeat
//! to the bit.
//!
//! The slots and their machines are in [`slots`](crate::aggregation::slots); this folder has what is Flare's own: the
//! end of the header ([`wire`]), which of the paper's buffers a block's vectors meet in ([`design`]), and its
//! options (`protocol.rs`). Sums of sparse tensors have machines of their own, in [`sparse`].
//! `docs/protocols/flare.md` goes through the paper section by section.

mod design;
mod protocol;
pub mod sparse;
pub mod wire;

pub use self::protocol::PROTOCOL;
