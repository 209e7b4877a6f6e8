//! The virtual driver: a deterministic packet-level simulator that runs the protocols' own machines.
//!
//! Start with [`run`], which turns a [`config::Config`] into a [`report::Report`], and [`driver::Simulation`], the main
//! loop. Below it: [`events`] (future events), [`net`] (links, their packets and their faults), [`topology`] (the
//! cables), [`routing`] (the paths of packets), [`cores`] (a switch's processor). Around it: [`experiment`] (a file's
//! run, also on several threads), [`check`] and [`swarm`] (rules that every run must keep), [`sweep`] (many runs),
//! [`table`] (results). The crate `tributary-papers` runs published results on it.

pub mod capture;
pub mod check;
pub mod config;
pub mod cores;
pub mod driver;
pub mod events;
pub mod experiment;
pub mod figure;
pub mod net;
pub mod report;
pub mod rng;
pub mod routing;
pub mod swarm;
pub mod sweep;
pub mod table;
pub mod topology;
pub mod transport;
pub mod workload;

pub use experiment::{run, run_on_threads, run_watched};
