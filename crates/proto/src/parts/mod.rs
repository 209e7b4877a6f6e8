//! What protocols share.

pub mod rtt;
pub mod slot_lists;
