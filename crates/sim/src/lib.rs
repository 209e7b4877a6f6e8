//! A deterministic packet-level simulator that runs the protocols' own machines in virtual time.
//!
//! An experiment is a file ([`Config`]); [`run`] makes a [`Report`] of it:
//!
//! ```
//! use tributary_sim::{Config, run};
//!
//! let config = Config::parse(
//!     r#"
//!     network = { leaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 4 }, rate = "100 Gbit/s" }
//!
//!     [[job]]
//!     protocol = "switchml"
//!     tensor = "100 kB"
//!     "#,
//! )?;
//! let report = run(&config)?;
//! assert_eq!(report.failure(), None, "every sum is verified");
//! println!("{:.1} Gbit/s", report.jobs[0].goodput_gbps.unwrap_or(0.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start with [`engine`], whose [`Simulation`] is the main loop.
//!
//! | module | what is in it |
//! |---|---|
//! | [`config`], [`experiment`] | a file, and its run, also on several threads |
//! | [`events`], [`net`] | future events; links with their packets and faults |
//! | [`topology`], `routing` | the cables, and the paths of packets |
//! | [`transport`], [`workload`] | DCTCP and other flows beside jobs, and when they begin |
//! | [`cores`] | a switch's processor |
//! | [`report`], [`table`], `provenance`, [`capture`] | results, what made them, and packet traces |
//! | `check`, [`swarm`], [`sweep`] | rules that every run must keep; random runs; many runs |
//!
//! Names without a link are private modules. [`cores`], [`events`] and [`workload`] are public only for
//! `tributary-papers` (which runs published results), for the tables of PsPIN's cycles, benches and tests.

pub mod capture;
mod check;
pub mod config;
pub mod cores;
mod deadlock;
pub mod engine;
pub mod events;
pub mod experiment;
pub mod net;
mod provenance;
pub mod report;
pub mod rng;
mod routing;
pub mod swarm;
pub mod sweep;
pub mod table;
pub mod topology;
pub mod transport;
pub mod workload;

pub use check::{Checker, Findings};
pub use config::{Config, ConfigError};
pub use engine::{Action, InstallError, JobError, JobErrorKind, JobPlan, Settings, Simulation};
pub use experiment::{Progress, RunError, run, run_on_threads, run_watched};
pub use net::{LosslessSpec, PacketEvent, TraceEvent, Tracer};
pub use provenance::{Program, sha256};
pub use report::{Figure, JobReport, Mark, Report, Series, Stop};
pub use routing::Balancing;
pub use sweep::{Store, Sweep, SweepPoint};
pub use table::{Format, Table};
pub use topology::{Graph, LinkId, LinkSpec, Rate};
