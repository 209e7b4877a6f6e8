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
//! Start with [`engine`], whose [`Simulation`] is the main loop. Below it: [`events`] (future events), [`net`] (links, their
//! packets and their faults), [`topology`] (the cables), [`routing`] (the paths of packets), [`transport`] (DCTCP),
//! [`workload`] (traffic beside jobs), [`cores`] (a switch's processor). Around it: [`config`] and [`experiment`] (a file
//! and its run, also on several threads), [`report`], [`table`] and [`figure`] (results), [`provenance`] (what made them), [`capture`] (packet traces),
//! [`check`] and [`swarm`] (rules that every run must keep), [`sweep`] (many runs). The crate `tributary-papers` runs
//! published results on it.

pub mod capture;
pub mod check;
pub mod config;
pub mod cores;
pub mod engine;
pub mod events;
pub mod experiment;
pub mod figure;
pub mod net;
pub mod provenance;
pub mod report;
pub mod rng;
pub mod routing;
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
pub use figure::{Figure, Series};
pub use net::{LosslessSpec, PacketEvent, TraceEvent, Tracer};
pub use report::{JobReport, Report, Stop};
pub use sweep::{Store, Sweep, SweepPoint};
pub use table::{Format, Table};
pub use topology::{Graph, LinkId, LinkSpec, Rate};
