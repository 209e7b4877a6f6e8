//! The driver over real sockets on the loopback interface: one program, so that it is linked once.

mod access;
mod addresses;
mod control_api;
mod dedicated_servers;
mod every_address;
mod fabric;
mod fabric_memory;
mod fabric_servers;
mod failures;
mod finish;
mod fuzz;
mod handover;
mod levels;
mod metrics;
mod operators;
mod operators_act;
mod panama;
mod progress;
mod recorded;
mod servers;
mod sharing;
mod sparse;
mod sums;
mod support;
mod udp_port;
mod versions;
