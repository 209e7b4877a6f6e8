//! The contract of the machines: what drivers and protocols share. It contains no driver and no protocol.
//!
//! [`host`] and [`switch`] are the two traits. [`pipeline`] is the code that every packet at a switch passes first.
//! [`packet`] and [`wire`] are packets and the header that all of them begin with; a machine is made from [`config`].
//! [`tensor`] is a collective and its data ([`sparse`]: data as indices and values), [`numbers`] how elements travel
//! ([`operator`]: operators that a job brings), and [`values`] how a vector lies in memory. [`work`] is what a call of
//! a switch's machine did, for drivers in which work takes time. [`drive`] is what every driver does with a machine.

pub mod asked;
pub mod config;
pub mod drive;
pub mod drop_reason;
mod few;
pub mod host;
pub mod ids;
pub mod metric;
pub mod numbers;
pub mod operator;
pub mod options;
pub mod pace;
pub mod packet;
pub mod pipeline;
pub mod protocol;
pub mod sparse;
pub mod state;
pub mod sum_tree;
pub mod switch;
pub mod tensor;
pub mod time;
pub mod values;
pub mod wire;
pub mod work;
