//! The virtual driver: a deterministic packet-level simulator that runs the protocols' own machines.
//!
//! Start with [`run`], which takes a [`config::Config`] to a [`report::Report`], and [`driver::Simulation`], the main
//! loop. Below it: [`events`] (what happens next), [`net`] (links, what they carry, and what goes wrong on them),
//! [`topology`] (who is connected to whom), [`routing`] (which way a packet goes), [`cores`] (a switch's processor). Around it: [`experiment`] (a file's run, on several threads too), [`check`] and [`swarm`] (what must hold of
//! any), [`sweep`] (many runs), [`table`] (results), [`reproduce`] (published ones).

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
pub mod reproduce;
pub mod rng;
pub mod routing;
pub mod swarm;
pub mod sweep;
pub mod table;
pub mod topology;
pub mod transport;
pub mod workload;

pub use experiment::{run, run_on_threads, run_watched};
