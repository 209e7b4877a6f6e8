//! The protocols of Tributary, each a pair of state machines without socket, clock, thread or random source.
//!
//! Start with [`host::Host`] and [`switch::Switch`], the contract that drivers and protocols share; then
//! [`pipeline::Pipeline`], which every packet at a switch passes; then a protocol's folder. What protocols share is in
//! [`aggregation`], [`reliability`] and [`congestion`]. `docs/protocols/` has a
//! page for each protocol, and `docs/wire.md` has every header.
#![forbid(unsafe_code)]

pub mod aggregation;
pub mod atp;
pub mod canary;
pub mod congestion;
pub mod contract;
pub mod flare;
mod heap;
pub mod marking;
pub mod pa_atp;
pub mod panama;
pub mod protocols;
pub mod ps;
pub mod reliability;
pub mod ring;
pub mod sparcml;
mod splitmix;
pub mod switch_options;
pub mod switchml;
pub mod tensors;
