//! The drain of the contract, written once: what a driver does with a machine after every input.
//!
//! A driver says how packets come and go. These functions take each packet through the machines, carry out verdicts,
//! send packets that machines make by themselves, and pass events on, in the order that
//! [`Switch`](super::switch::Switch) and [`Host`](super::host::Host) require. They have no socket, clock or queue: the
//! driver brings them, and the compiler builds one loop for each driver. [`record`] is a driver that only records what
//! machines do.

pub mod host;
pub mod record;
pub mod switch;
