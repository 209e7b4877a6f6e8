//! The driver over real sockets on the loopback interface: one program, so that it is linked once.

mod access;
mod addresses;
mod apart;
mod control_api;
mod every_address;
mod fabric;
mod fabric_memory;
mod fabric_servers;
mod finish;
mod fuzz;
mod levels;
mod metrics;
mod operators;
mod panama;
mod progress;
mod recorded;
mod servers;
mod sharing;
mod sparse;
mod sums;
mod support;
mod trouble;
mod udp_port;
mod versions;
