//! The shape of a processor: clusters, cores and memories.

/// The cores that may run a block's handlers.
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
    /// How many packets a cluster holds whose handlers have not begun.
    pub input_slots: u32,
    /// Bytes that its DMA moves in a cycle.
    pub bytes_per_cycle: u64,
    /// How many cycles a fetch takes besides.
    pub latency: u64,
    /// How long a cycle is.
    pub cycle: u64,
}

/// The processor's clusters, cores and memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many clusters there are.
    pub clusters: u32,
    /// How many cores each cluster has.
    pub cores: u32,
    /// The subset of cores that is the home of a block.
    pub subset: Subset,
    /// Bytes of the packet memory.
    pub packet_memory: u64,
    /// Bytes of a cluster's memory that blocks may take. Using more is counted, and costs nothing.
    pub working_memory: u64,
    /// How packets get from the packet memory to cores; `None` if they need no time.
    pub fetching: Option<Fetching>,
    /// How long it takes until a cluster's first handler is in its instruction cache. All handlers that begin meanwhile
    /// wait for it.
    pub cold_start: u64,
}

impl Shape {
    /// Clusters with unbounded memory, where packets need not be fetched.
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

    /// The number of cores of all clusters: K.
    pub fn all_cores(&self) -> u32 {
        self.clusters * self.cores
    }

    /// The number of cores of a subset: S.
    pub fn subset_cores(&self) -> u32 {
        match self.subset {
            Subset::Core => 1,
            Subset::Cluster => self.cores,
        }
    }

    /// The subset that handles a block's packets.
    pub fn home(&self, block: u64) -> u32 {
        (block % u64::from(self.all_cores() / self.subset_cores())) as u32
    }
}
