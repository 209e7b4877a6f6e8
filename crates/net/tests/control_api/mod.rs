//! The control plane over real sockets: what members, operators and unauthorised clients learn from a switch.

mod joining;
mod requests;
mod setup;
mod starting;
mod watching;
