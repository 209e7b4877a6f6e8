//! The real program on a network of namespaces that loses, doubles and reorders packets, and on which processes die.
//! Needs root, iproute2 and nftables: without them every test says so and passes.

mod agreement;
mod agreement_fabric;
mod crowds;
mod doctor;
mod fabric;
mod fabric_deaths;
mod fabric_lossless;
mod fabric_memory;
mod fabric_operators;
mod fabric_servers;
mod fabric_shares;
mod fabric_trees;
mod failures;
mod fair;
mod faults;
mod guests;
mod network;
mod operators;
mod paths;
mod racks;
mod servers;
mod sharing;
mod soak;
mod unauthorised;
