//! Best-effort aggregation, with the machines of every protocol of that family, in virtual time.

#[path = "../harness/mod.rs"]
mod harness;

mod apart;
mod cables;
mod doubles;
mod exchanges;
mod fabric;
mod floats;
mod golden;
mod losses;
mod setup;
mod slow;
mod strangers;
mod sums;
mod windows;
