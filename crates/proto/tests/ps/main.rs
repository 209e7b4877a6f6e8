//! Parameter servers in virtual time: exact sums wherever servers are, colocated ones that part, and silent ones by
//! name.

#[path = "../harness/mod.rs"]
mod harness;

mod parting;
mod results;
mod setup;
