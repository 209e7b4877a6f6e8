//! Best-effort aggregation, with the machines of every protocol of that family, in virtual time.

#[path = "../harness/mod.rs"]
mod harness;

mod dedicated_servers;
mod doubles;
mod exchanges;
mod fabric;
mod floats;
mod golden;
mod losses;
mod rejected_packets;
mod setup;
mod slow;
mod sums;
mod windows;
