//! The real driver: the machines of `tributary-proto` over UDP.
//!
//! Start with [`rendezvous`] (what a worker and a switch must know of each other), then [`shard`] (one core of a
//! switch) and [`group`] (one worker). [`udp`] is the port through which both sides send and receive. [`switch_daemon`]
//! is a whole switch, with its control plane over HTTP, its [`status`] and its [`history`]; [`client`] is the other end
//! of that API. [`server`] is a process that sums for jobs whose protocol has servers. [`fabric`] is a switch that
//! works with others.
#![deny(unsafe_code)]

mod api;
mod ascent;
pub mod challenge;
pub mod client;
mod control_plane;
mod event_loop;
pub mod fabric;
pub mod group;
pub mod history;
mod http;
mod memory;
pub mod metrics;
pub mod os;
pub mod pool_size;
mod progress;
pub mod rendezvous;
pub mod server;
pub mod shard;
mod sharers;
pub mod status;
pub mod switch_daemon;
pub mod token;
mod transmit;
pub mod udp;
