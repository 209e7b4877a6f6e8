//! Canary (De Sensi et al., 2023): aggregation trees that are not planned, but form block by block on the least
//! congested ways.
//!
//! Start with [`wire`]; then the switch ([`switch`], §3.1 and §3.2), whose memory is a static array of descriptors that
//! all jobs share; then the hosts ([`host`]), each of which leads some of the blocks (§3.1.4, §3.3).
//! `docs/protocols/canary.md` goes through the paper section by section.

mod host;
mod protocol;
mod switch;
mod vector;
pub mod wire;

use host::CanaryHost;
pub use protocol::{PROTOCOL, SWITCH};
pub use switch::CanarySwitch;
