//! How much a sender may have under way: one file for each controller.

pub mod dctcp;
