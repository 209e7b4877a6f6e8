//! Parameter servers in virtual time: exact sums wherever servers are, reduce-scatters and all-gathers that bring what
//! is new, colocated servers that part, and silent ones by name.

#[path = "../harness/mod.rs"]
mod harness;

mod parting;
mod results;
mod scatters;
mod setup;
