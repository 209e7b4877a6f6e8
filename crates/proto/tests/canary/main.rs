//! Canary's machines, rule by rule and together, in virtual time.

#[path = "../harness/mod.rs"]
mod harness;

mod adaptive;
mod broadcast;
mod fabric;
mod failure;
mod faults;
mod golden;
mod jobs;
mod proofs;
mod reduce;
mod results;
mod setup;
mod sixteen_bits;
mod stragglers;
mod switch;
