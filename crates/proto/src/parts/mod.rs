//! What protocols share.

pub mod rtt;
