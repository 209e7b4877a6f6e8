//! `[switches.cores]`: switches whose handlers run on cores and take time.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Bytes;
use super::{ConfigError, invalid};
use crate::cores::prices::Code;
use crate::cores::{Fetching, Shape, Subset};

/// The cores on which a block's handlers may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubsetName {
    /// One core of a cluster: S = 1.
    Core,
    /// All cores of a cluster: S = C.
    #[default]
    Cluster,
}

/// What happens to a packet that does not fit into the packet memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Full {
    /// The packet is dropped.
    #[default]
    Drop,
    /// This never happens: packets are charged to the ports where they came in, and PAUSE stops senders in time.
    Pause,
}

/// The processor of every switch (Flare §3).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoresSection {
    /// How many clusters there are.
    pub clusters: u32,
    /// How many cores each cluster has.
    pub cores: u32,
    /// The clock of every core.
    pub clock_mhz: u32,
    /// The cores on which a block's handlers run.
    pub subset: SubsetName,
    /// The packet memory, L2.
    pub packet_memory: Bytes,
    /// What happens to a packet when the packet memory is full.
    pub full: Full,
    /// Packets that arrive while more than this is taken are marked, if their senders support marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_above: Option<Bytes>,
    /// The memory of a cluster, L1, that blocks may take.
    pub working_memory: Bytes,
    /// How many packets a cluster holds whose handlers have not begun.
    pub input_slots: u32,
    /// Bytes that a cluster's DMA fetches in a cycle.
    pub dma_bytes: u32,
    /// Cycles before a fetch begins to bring bytes.
    pub dma_latency: u32,
    /// How many misses of a cluster's instruction cache its first handler has.
    pub cold_misses: u32,
    /// Cycles of each miss.
    pub miss_cycles: u32,
    /// How the handlers' inner loops are written.
    pub handlers: Code,
    /// A file with cycles of custom operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operators: Option<PathBuf>,
}

impl Default for CoresSection {
    /// The paper's processor: 64 clusters of eight cores at 1 GHz, 4 MiB of packet memory; the rest is PsPIN's.
    fn default() -> CoresSection {
        CoresSection {
            clusters: 64,
            cores: 8,
            clock_mhz: 1000,
            subset: SubsetName::Cluster,
            packet_memory: Bytes(4 << 20),
            full: Full::Drop,
            mark_above: None,
            working_memory: Bytes(800 << 10),
            input_slots: 12,
            dma_bytes: 64,
            dma_latency: 25,
            cold_misses: 82,
            miss_cycles: 15,
            handlers: Code::Xpulp,
            operators: None,
        }
    }
}

/// Picoseconds in a microsecond.
const PICOSECONDS: u64 = 1_000_000;
/// More cores than this are probably a mistake.
const MAX_CORES: u64 = 1 << 16;

impl CoresSection {
    /// How many picoseconds a cycle takes.
    pub fn cycle(&self) -> u64 {
        (PICOSECONDS / u64::from(self.clock_mhz.max(1))).max(1)
    }

    /// The processor's shape, with times in picoseconds; an error if there can be no such processor.
    pub fn shape(&self) -> Result<Shape, ConfigError> {
        let least = [
            ("clusters", self.clusters),
            ("cores", self.cores),
            ("clock_mhz", self.clock_mhz),
            ("input_slots", self.input_slots),
            ("dma_bytes", self.dma_bytes),
        ];
        if let Some((key, _)) = least.into_iter().find(|(_, value)| *value == 0) {
            return Err(invalid(format!("switches.cores: {key} = 0: a processor has at least one")));
        }
        if u64::from(self.clusters) * u64::from(self.cores) > MAX_CORES {
            return Err(invalid(format!(
                "switches.cores: {} clusters of {} cores are more than {MAX_CORES} cores",
                self.clusters, self.cores
            )));
        }
        if self.clock_mhz > 10_000 {
            return Err(invalid(format!("switches.cores: clock_mhz = {} is above 10,000", self.clock_mhz)));
        }
        let cycle = self.cycle();
        let subset = match self.subset {
            SubsetName::Core => Subset::Core,
            SubsetName::Cluster => Subset::Cluster,
        };
        let fetching = Fetching {
            input_slots: self.input_slots,
            bytes_per_cycle: self.dma_bytes.into(),
            latency: self.dma_latency.into(),
            cycle,
        };
        Ok(Shape {
            packet_memory: if self.full == Full::Drop { self.packet_memory.0 } else { u64::MAX / 4 },
            working_memory: self.working_memory.0,
            fetching: Some(fetching),
            cold_start: u64::from(self.cold_misses) * u64::from(self.miss_cycles) * cycle,
            ..Shape::ideal(self.clusters, self.cores, subset)
        })
    }
}
