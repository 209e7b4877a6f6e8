//! The real driver: the machines of `tributary-proto` over UDP.
//!
//! Start with [`rendezvous`] (what a worker and a switch must know of each other), then [`shard`] (one core of a
//! switch) and [`group`] (one worker). [`udp`] is the port that both sides send and receive through.
#![deny(unsafe_code)]

pub mod clock;
pub mod group;
mod memory;
pub mod pool_size;
pub mod rendezvous;
pub mod shard;
pub mod udp;
mod wake;
