//! The control planes in virtual time: one program, so that it is linked once.

mod absences;
mod aggregation_plan;
mod charges;
mod clients;
mod deaths;
mod fabric_servers;
mod handovers;
mod harness;
mod holdings;
mod job_events;
mod level_watches;
mod levels;
mod lifetimes;
mod networks;
mod operators;
mod racks;
mod random_scenarios;
mod rendezvous;
mod servers;
mod shared_memory;
mod shares;
mod trees;
mod watches;
