//! SwitchML (Sapio et al., NSDI 2021): a pool of slots in the switch, self-clocked by the hosts.
//!
//! The slots and their machines are in [`slots`]: start there with the switch's decision table (Algorithm 3) and the
//! host (Algorithm 4, with the stream of appendix B). This folder has only what is specific to SwitchML: the end of the
//! header ([`wire`]) and the exponents in it. `docs/protocols/switchml.md` goes through the paper section by section.

mod protocol;
pub mod wire;

use self::protocol::SwitchMlDialect;
use crate::aggregation::slots;

pub use protocol::PROTOCOL;
pub(crate) use protocol::{SLOT_SPECS, options};

/// A worker's machine.
pub type SwitchMlHost = slots::SlotHost<SwitchMlDialect>;
/// A switch's machine.
pub type SwitchMl = slots::SlotSwitch<SwitchMlDialect>;
