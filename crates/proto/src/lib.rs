//! The protocols of Tributary, each a pair of state machines without socket, clock, thread or random source.
//!
//! Start with [`host::Host`] and [`switch::Switch`], the contract that drivers and protocols share; then
//! [`pipeline::Pipeline`], which every packet at a switch passes; then a protocol's folder. `docs/protocols/` has a page
//! for each, `docs/wire.md` every header.
#![forbid(unsafe_code)]

pub mod canary;
pub mod config;
pub mod drop_reason;
pub mod host;
pub mod ids;
pub mod packet;
pub mod parts;
pub mod pipeline;
pub mod ps;
pub mod registry;
pub mod ring;
pub mod switch;
pub mod switchml;
pub mod tensor;
pub mod tensors;
pub mod time;
pub mod values;
pub mod wire;
