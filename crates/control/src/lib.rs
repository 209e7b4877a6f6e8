//! The control plane of a switch, as pure planning: which jobs may use the switch, with how much of its memory, and for
//! how long.
//!
//! Start with [`Control`], the state machine of a switch's jobs. It owns no socket and no clock: a driver reports
//! joins, leaves and signs of life together with the time, and carries out the [`Effect`]s. [`admission`] decides how
//! many slots a job gets; [`config`] is the file that an operator writes. `docs/control.md` states every rule.
//! [`fabric`] is the plan of several switches that work together, [`routes`] are the ways through a network of them,
//! and [`trees`] plans which switch sums for which.
#![forbid(unsafe_code)]

pub mod admission;
mod client;
pub mod config;
mod control;
pub mod fabric;
mod forming;
mod holding;
mod levels;
mod memory;
mod name;
mod network;
pub mod option_text;
mod plan;
pub mod quantity;
mod ranks;
mod refusal;
mod report;
mod request;
pub mod routes;
mod running;
mod servers;
mod shared_memory;
mod shares;
mod tidings;
mod timers;
pub mod tokens;
pub mod trees;
mod watch;

pub use admission::{Limits, Quota};
pub use client::{Client, Share};
pub use control::Control;
pub use control::adopt::FoundJob;
pub use holding::{Held, Holding, is_charged_by_tree};
pub use levels::{Ascent, Child, SwitchJoin, SwitchPlace, Uplink};
pub use memory::{JobShape, MAX_ELEMENTS_PER_PACKET};
pub use name::{BadName, JobName};
pub use network::{Network, NotANetwork};
pub use plan::{Admitted, Effect, Plan, Ticket};
pub use ranks::Ranks;
pub use refusal::Refusal;
pub use report::{AboveView, JobServerView, JobView, MemberState, MemberView, OfferView, Phase, SwitchView};
pub use request::JoinRequest;
pub use servers::{JobServer, ServerOffer, ServerPlace, Servers};
pub use shared_memory::{SharedMemory, TooMuchToShare};
pub use shares::{divide, is_worth_growing};
pub use tidings::{End, Tiding};
pub use timers::Timers;
pub use watch::{Departed, Gone, Suspect, Testimony};
