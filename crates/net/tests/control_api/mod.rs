//! The control plane over real sockets: what members, operators and strangers get to hear from a switch.

mod joining;
mod requests;
mod setup;
mod starting;
mod watching;
