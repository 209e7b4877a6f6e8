//! The real driver: the machines of `tributary-proto` over UDP.
//!
//! A switch in this process, and two workers that sum over the loopback interface:
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//!
//! use tributary_net::{ConnectOptions, Group, RunningSwitch, SwitchOptions};
//! use tributary_numeric::ReduceOp;
//! use tributary_proto::protocols;
//!
//! let switch = RunningSwitch::start(&SwitchOptions::new(([127, 0, 0, 1], 0).into()))?;
//! let protocol = protocols::ALL[0];
//! thread::scope(|scope| {
//!     for rank in 0..2 {
//!         let options = ConnectOptions::new(switch.listen_addr(), "example", rank, 2, protocol);
//!         scope.spawn(move || {
//!             let group = Group::connect(&options).unwrap();
//!             let mut data = [f32::from(rank + 1); 1_000];
//!             group.allreduce_in_place(&mut data, ReduceOp::Sum, Duration::from_secs(10)).unwrap();
//!             assert_eq!(data, [3.0; 1_000]);
//!         });
//!     }
//! });
//! # Ok::<(), tributary_net::StartError>(())
//! ```
//!
//! A worker is a [`Group`]. Its [`Rendezvous`] is how it finds its switch and the other members: [`HttpRendezvous`], or one
//! of the caller's own. A whole switch with its control plane over HTTP is a [`RunningSwitch`]; it
//! stands alone, or works with others in a fabric ([`SwitchOptions::in_fabric`]). [`shard`] is one core of a switch.
//! [`client`] reads a switch's [`status`] and [`history`]. A [`RunningServer`] sums for jobs whose protocol has servers.
#![deny(unsafe_code)]

mod api;
#[doc(hidden)]
pub mod challenge;
pub mod client;
mod control_plane;
#[doc(hidden)]
pub mod fabric;
pub mod group;
pub mod handover;
pub mod history;
mod http;
mod memory;
#[doc(hidden)]
pub mod metrics;
#[doc(hidden)]
pub mod os;
mod parent_client;
#[doc(hidden)]
pub mod pool_size;
mod progress;
pub mod rendezvous;
pub mod server;
pub mod shard;
pub mod status;
pub mod switch_daemon;
mod transmit;
#[doc(hidden)]
pub mod udp;

pub use client::{ClientError, HttpRendezvous, Token};
pub use group::{
    ConnectError, ConnectOptions, Drive, Group, GroupError, GroupInfo, GroupStats, JobFailure, PathReport, Pending,
    Submission,
};
pub use rendezvous::{JoinAnswer, JoinError, JoinRequest, Rendezvous, Standing, Watched};
pub use server::{RunningServer, ServerError, ServerOptions};
pub use switch_daemon::{FabricNode, RunningSwitch, StartError, SwitchOptions};
