//! What switches hold for jobs that share their memory, in the file.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::config::FlushTimeout;
use tributary_proto::contract::time::Span;

use super::quantity::Duration;
use crate::driver::SharedSettings;

/// `[switches]`: the static array of each switch that all jobs of a protocol share (Canary §3.2). The same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchSection {
    /// Entries of the array.
    pub descriptors: u32,
    /// Equal parts of it; a job uses one.
    pub partitions: u16,
    /// How long a partial sum waits for more: `"1 us"`, or `{ least = "200 ns", most = "4 us" }` to follow what the
    /// switch sees.
    pub timeout: FlushSection,
    /// An entry that nobody has needed for so long is free again.
    pub lease: Duration,
    /// A block that failed so often is summed by hosts.
    pub reissues: u8,
}

/// How long a partial sum waits.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a time as in \"1 us\", or { least = \"200 ns\", most = \"4 us\" }")]
pub enum FlushSection {
    /// Always so long.
    Fixed(Duration),
    /// As long as contributions lie apart, within bounds.
    Adaptive {
        /// Never shorter ...
        least: Duration,
        /// ... nor longer.
        most: Duration,
    },
}

impl Default for SwitchSection {
    fn default() -> SwitchSection {
        let defaults = SharedSettings::default();
        SwitchSection {
            descriptors: defaults.descriptors,
            partitions: defaults.partitions,
            timeout: match defaults.timeout {
                FlushTimeout::Fixed(span) => FlushSection::Fixed(Duration(span)),
                FlushTimeout::Adaptive { least, most } => {
                    FlushSection::Adaptive { least: Duration(least), most: Duration(most) }
                }
            },
            lease: Duration(defaults.lease),
            reissues: defaults.reissues,
        }
    }
}

impl SwitchSection {
    /// The longest that a partial sum waits.
    pub fn longest_wait(&self) -> Span {
        match self.timeout {
            FlushSection::Fixed(span) => span.0,
            FlushSection::Adaptive { most, .. } => most.0,
        }
    }
}
