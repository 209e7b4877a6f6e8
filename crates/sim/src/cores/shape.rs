//! The parts of a processor.

/// Who may run a block's handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subset {
    /// One core: S = 1.
    Core,
    /// All cores of one cluster: S = C.
    Cluster,
}

/// How clusters fetch packets from the packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// Packets that a cluster has room for whose handlers have not begun.
    pub places: u32,
    /// Bytes that its DMA moves in a cycle.
    pub bytes_per_cycle: u64,
    /// Cycles besides.
    pub latency: u64,
    /// How long a cycle is.
    pub cycle: u64,
}

/// The processor's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Clusters.
    pub clusters: u32,
    /// Cores of each.
    pub cores: u32,
    /// The home of a block.
    pub subset: Subset,
    /// Bytes of the packet memory.
    pub packet_memory: u64,
    /// Bytes of a cluster's memory that blocks may have. More is counted, and costs nothing.
    pub working_memory: u64,
    /// What lies between the packet memory and cores; none: nothing does.
    pub fetching: Option<Fetching>,
    /// How long a cluster's first handler takes to come into its instruction cache, and all that begin meanwhile.
    pub cold_start: u64,
}

impl Shape {
    /// Clusters with memory without bounds, whose packets are where cores are.
    pub fn ideal(clusters: u32, cores: u32, subset: Subset) -> Shape {
        let boundless = 1 << 40;
        Shape {
            clusters,
            cores,
            subset,
            packet_memory: boundless,
            working_memory: boundless,
            fetching: None,
            cold_start: 0,
        }
    }

    /// Cores of all clusters: K.
    pub fn all_cores(&self) -> u32 {
        self.clusters * self.cores
    }

    /// Cores of a subset: S.
    pub fn subset_cores(&self) -> u32 {
        match self.subset {
            Subset::Core => 1,
            Subset::Cluster => self.cores,
        }
    }

    /// The subset that has a block's packets.
    pub fn home(&self, block: u64) -> u32 {
        (block % u64::from(self.all_cores() / self.subset_cores())) as u32
    }
}
