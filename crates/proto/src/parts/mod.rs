//! What protocols share.

pub mod pacer;
pub mod rtt;
pub mod slot_lists;
pub mod window;
