//! PANAMA (Gebara et al., MLSys 2021): floats summed in the order of ports, over several trees, each with a window of
//! its own.
//!
//! Start with [`wire`]; then the switch's rule (`switch/heads.rs`, §5), the recovery from losses
//! (`switch/recovery.rs`), and the worker: [`host`], whose window (`host/window.rs`) is the paper's figure 5.
//! `docs/protocols/panama.md` goes through the paper section by section.

pub mod host;
mod partial;
mod protocol;
pub mod switch;
pub mod wire;

pub use host::PanamaHost;
pub use protocol::PROTOCOL;
pub use switch::Panama;
