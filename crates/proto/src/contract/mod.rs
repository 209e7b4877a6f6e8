//! The contract of the machines: what drivers and protocols share. It contains no driver and no protocol.
//!
//! A protocol is a pair of state machines, [`host::Host`] and [`switch::Switch`]. Their methods are of four kinds:
//!
//! - getters (`stats`, `report`, `may_leave` …), at any time;
//! - `handle_*` and [`process`](switch::Switch::process): inputs from the network and the clock;
//! - commands of the driver and its caller (`submit`, `abort`, `finish`, `resize`), which are inputs too;
//! - `poll_*`: outputs.
//!
//! After every input, or after a burst of packets, the driver drains the outputs in this order:
//!
//! 1. `poll_transmit` until it returns `None`;
//! 2. at a host, `poll_event` until it returns `None`;
//! 3. `poll_timeout`, and sets its timer for that time.
//!
//! A switch's verdict on a packet is carried out before the next packet is processed. A machine does nothing between
//! inputs, is told the time and never asks for it, and gives the same outputs for the same inputs. [`drive`] is this
//! drain as code, and every driver uses it.
//!
//! Everything that is optional for a protocol is a method that returns an optional trait object or value:
//! [`instrumented`](switch::Switch::instrumented) (work for simulated cores), [`state`](switch::Switch::state) (copies
//! for explorers), [`operator_status`](switch::Switch::operator_status) (custom operators).
//!
//! | module | what is in it |
//! |---|---|
//! | [`host`], [`switch`] | the two traits |
//! | [`protocol`], [`options`] | a protocol as a value, and what people choose for it |
//! | [`config`] | what machines are made from |
//! | [`packet`], [`wire`], [`drop_reason`] | packets, the header that all of them begin with, and why one may be dropped |
//! | [`seal`] | the optional checksum of packets |
//! | [`pipeline`] | the code that every packet at a switch passes first, with its [limits](rate_limit) |
//! | [`tensor`] | a collective and its data |
//! | [`numbers`], [`values`], [`sum_tree`], [`custom_op`] | how elements travel, lie in memory and are combined |
//! | [`drive`] | the order of calls as code |
//! | [`work`], [`state`] | what simulated cores and explorers ask for |

pub mod config;
pub mod custom_op;
pub mod drive;
pub mod drop_reason;
pub mod host;
pub mod ids;
pub mod metric;
pub mod numbers;
pub mod options;
pub mod packet;
pub mod pipeline;
pub mod protocol;
pub mod rate_limit;
pub mod seal;
mod small_map;
pub mod state;
pub mod sum_tree;
pub mod switch;
pub mod tensor;
pub mod time;
pub mod values;
pub mod wire;
pub mod work;
