//! What all jobs of a protocol share at a switch, in bytes: a machine that comes with the first of these jobs, and is part of
//! the switch's memory from then on.

use std::collections::BTreeMap;

use tributary_proto::contract::config::{FabricPlan, SharedSwitchConfig};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::values::Values;
use tributary_proto::protocols;
use tributary_proto::switch_options::SwitchOptions;

use crate::memory::Bytes;

/// The bytes of each such machine before it knows any job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedMemory(BTreeMap<u8, u64>);

/// The operator has chosen more for a protocol's jobs to share than the switch has for all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the jobs of {protocol} would share {} here, and the switch has {} for all jobs: choose fewer entries for them, or give \
     the switch more memory", Bytes(*.bytes), Bytes(*.memory_bytes)
)]
pub struct TooMuchToShare {
    /// The protocol's name.
    pub protocol: &'static str,
    /// The bytes of its machine.
    pub bytes: u64,
    /// The switch's bytes for all jobs.
    pub memory_bytes: u64,
}

impl SharedMemory {
    /// The machines of a switch with these options. `elements` says how many elements of four bytes the longest packet of a
    /// protocol has there.
    pub fn of(options: &SwitchOptions, elements: impl Fn(&'static Protocol) -> u16) -> SharedMemory {
        let bytes = |protocol: &'static Protocol| {
            let shared = protocol.shared.as_ref()?;
            let (elements_per_packet, options) = (elements(protocol), options.of(shared));
            let config = SharedSwitchConfig { node: FabricPlan::STAR, elements_per_packet, options };
            Some((protocol.code, (shared.memory)(Values::Elements, &config)))
        };
        SharedMemory(protocols::ALL.iter().copied().filter_map(bytes).collect())
    }

    /// The bytes of a protocol's machine; 0 if its jobs share none.
    pub fn bytes(&self, protocol: &Protocol) -> u64 {
        self.0.get(&protocol.code).copied().unwrap_or(0)
    }

    /// An error if the operator has chosen a machine that can never be there. One that nobody has chosen is refused when a
    /// job needs it.
    pub fn check(&self, options: &SwitchOptions, memory_bytes: u64) -> Result<(), TooMuchToShare> {
        for protocol in protocols::ALL {
            let Some(shared) = &protocol.shared else { continue };
            let bytes = self.bytes(protocol);
            if bytes > memory_bytes && options.of(shared) != shared.options.defaults() {
                return Err(TooMuchToShare { protocol: protocol.name, bytes, memory_bytes });
            }
        }
        Ok(())
    }
}
