//! The drain of the contract, written once: what a driver does with a machine after every input.
//!
//! A driver says how packets arrive and leave. These functions take each packet through the machines, carry out
//! verdicts, send the packets that machines make themselves, and pass events on, in [the order that machines
//! require](super). They have no socket, clock or queue: the driver brings them, and the compiler builds one loop for
//! each driver. [`record`] is a driver that only records what machines do.

pub mod host;
pub mod record;
pub mod switch;
