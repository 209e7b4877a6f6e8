//! SwitchML (Sapio et al., NSDI 2021): a pool of slots in the switch, self-clocked by the hosts.
//!
//! Start with [`wire`]; then the switch's decision table (`switch/slot.rs`, Algorithm 3); then [`host`] (Algorithm 4,
//! with the stream of appendix B). `docs/protocols/switchml.md` goes through the paper section by section.

pub mod host;
mod protocol;
pub mod switch;
pub mod wire;

pub use host::SwitchMlHost;
pub use protocol::PROTOCOL;
pub(crate) use protocol::can;
pub use switch::SwitchMl;
