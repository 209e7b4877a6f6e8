//! Canary's machines, rule by rule and together, in virtual time.

mod broadcast;
mod fabric;
mod faults;
mod proofs;
mod reduce;
mod results;
mod switch;
mod trouble;
