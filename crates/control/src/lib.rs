//! The control plane of a switch, as pure planning: which jobs may use the switch, with how much of its memory, and for
//! how long.
//!
//! [`Control`] is the state machine of a switch's jobs. It has neither socket nor clock: a driver reports joins, leaves and
//! packets together with the time, and carries out the [`Effect`]s.
//!
//! ```
//! use tributary_control::{Client, Control, Effect, JobName, JoinRequest, Limits};
//! use tributary_proto::contract::ids::JobKey;
//! use tributary_proto::contract::time::{Span, Time};
//! use tributary_proto::protocols;
//!
//! // A switch with 64 MiB for jobs and one shard.
//! let mut control = Control::new(Limits::new(64 << 20, 1));
//! let name = JobName::new("train").unwrap();
//! let protocol = protocols::named("switchml").unwrap();
//!
//! // Two ranks join. The first waits for the second.
//! for rank in 0..2 {
//!     let request = JoinRequest {
//!         rank,
//!         world_size: 2,
//!         protocol,
//!         slots: None,
//!         suggested_slots: 100,
//!         elements_per_packet: None,
//!         max_elements_per_packet: 358,
//!         trees: None,
//!         addr: ([10, 0, 0, 1 + rank as u8], 5_000).into(),
//!         core_ports: Vec::new(),
//!         joined_at: [10, 0, 0, 254].into(),
//!         incarnation: rank.into(),
//!         options: protocol.options.defaults(),
//!         timeout: Span::from_millis(60_000),
//!         client: Client::at([10, 0, 0, 1].into()),
//!     };
//!     assert!(control.poll_effect().is_none());
//!     control.join(Time::ZERO, &name, request, JobKey(7));
//! }
//!
//! // The job is installed with slots in a power of two; then both joins are answered.
//! let Some(Effect::Install(plan)) = control.poll_effect() else { panic!("it is installed first") };
//! assert_eq!((plan.slots, plan.workers.len()), (128, 2));
//! control.installed(Time::ZERO, plan.config.job, Ok(()));
//! assert!(matches!(control.poll_effect(), Some(Effect::Answer { admitted: Ok(_), .. })));
//! ```
//!
//! | folder | what it has |
//! |---|---|
//! | `machine` | [`Control`]: what happens at each input |
//! | [`admission`] | every rule that decides whether a job may run, and with how much memory |
//! | `membership` | who belongs to a pending or running job, and how a loss is noticed |
//! | [`levels`], [`servers`] | switches with a parent; servers that offer themselves to jobs |
//! | [`aggregation_plan`] | which share of a tensor each host sums, from the links |
//! | `effect`, [`report`] | what the driver carries out; what operators see |
//! | [`config`], [`quantity`] | the files that operators write, and quantities as people write them |
//! | [`fabric`], [`routes`], [`trees`] | several switches as one: their layout, the ways between them, and which switch sums for which |
//!
//! `docs/control.md` states every rule.
#![forbid(unsafe_code)]

pub mod admission;
pub mod aggregation_plan;
pub mod config;
mod effect;
pub mod fabric;
mod ip_network;
mod large_sums;
pub mod levels;
mod machine;
mod membership;
mod names;
pub mod quantity;
pub mod report;
pub mod routes;
pub mod servers;
pub mod trees;
mod wording;

pub use admission::{ClientLimits, JobShape, JoinRequest, Limits, OperatorAct, Quota, Refusal, Timers};
pub use effect::{Admitted, Effect, Plan, Ticket};
pub use ip_network::{BadNetwork, IpNetwork};
pub use large_sums::{LargeSums, SumShare};
pub use machine::{AdoptedJob, Control, EarlierJob, Succession};
pub use membership::job_events::{End, JobEvent};
pub use membership::watch::{ProbeResult, ProbeTarget};
pub use membership::{Departed, Gone, MemberState};
pub use names::{BadName, Client, JobName};
pub use report::{JobView, Phase};
pub use wording::{Ranks, printable};
