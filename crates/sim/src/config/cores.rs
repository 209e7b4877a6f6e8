//! Switches whose programs take time: on cores, `[switches.cores]`, or behind an accelerator, `[switches.accelerator]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tributary_proto::contract::time::Span;

use super::{Bytes, DataRate, Duration};
use super::{ConfigError, invalid};
use crate::cores::prices::Code;
use crate::cores::{Fetching, Shape, Subset};
use crate::engine::Accelerator;
use crate::topology::{Graph, Rate};

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

/// `[switches.accelerator]`: the time of a packet for a program between its arrival and the program.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AcceleratorSection {
    /// The same for each packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Duration>,
    /// That of PANAMA's accelerator of `dataplanes/panama`, by the switch's ports: the width of its bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_bits: Option<u32>,
    /// Its clock.
    #[serde(default = "prototype_mhz")]
    pub clock_mhz: u32,
}

/// The clock of the paper's prototype (PANAMA §6).
fn prototype_mhz() -> u32 {
    200
}

impl AcceleratorSection {
    /// What packets pass in the switches of a network; an error if the design has no such accelerator.
    pub fn kind(&self, graph: &Graph) -> Result<Accelerator, ConfigError> {
        match (self.latency, self.bus_bits) {
            (Some(latency), None) => Ok(Accelerator::Fixed(latency.0)),
            (None, Some(bits)) => self.design(bits, graph),
            _ => Err(invalid(
                "switches.accelerator needs either latency, or bus_bits for our hardware design: only one of the two",
            )),
        }
    }

    fn design(&self, bus_bits: u32, graph: &Graph) -> Result<Accelerator, ConfigError> {
        if !bus_bits.is_power_of_two() || !(64..=512).contains(&bus_bits) {
            return Err(invalid(format!("switches.accelerator: bus_bits = {bus_bits}: it is 64, 128, 256 or 512")));
        }
        if !(1..=10_000).contains(&self.clock_mhz) {
            return Err(invalid(format!("switches.accelerator: clock_mhz = {}: it is 1 to 10,000", self.clock_mhz)));
        }
        for switch in (0..graph.switches()).map(|index| graph.switch(index)) {
            let edges = || graph.edges().iter().filter(|edge| [edge.a, edge.b].contains(&switch));
            let (ports, measured) = (edges().count(), Accelerator::MEASURED_PORTS);
            if !measured.contains(&ports) {
                let (name, least, most) = (graph.name(switch), measured.start(), measured.end());
                return Err(invalid(format!(
                    "switches.accelerator: {name} has {ports} ports, and the design was measured with {least} to {most}: \
                     write latency in place of bus_bits"
                )));
            }
            // Equation 1 of PANAMA's appendix A.
            let bus = Rate(u64::from(bus_bits) * u64::from(self.clock_mhz) * 1_000_000);
            if let Some(link) = edges().map(|edge| edge.a_to_b.rate.max(edge.b_to_a.rate)).find(|&rate| rate > bus) {
                return Err(invalid(format!(
                    "switches.accelerator: a bus of {bus_bits} bits at {} MHz carries {}, and a link {}",
                    self.clock_mhz,
                    DataRate(bus),
                    DataRate(link)
                )));
            }
        }
        Ok(Accelerator::Design { cycle: Span(PICOSECONDS / u64::from(self.clock_mhz)) })
    }
}
