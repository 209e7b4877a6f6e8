//! §3's area by arithmetic, and §6's cycles as handlers were counted.

use serde::Deserialize;
use tributary_proto::contract::work::{Needs, Work};
use tributary_sim::cores::prices::{COPIED_PER_CYCLE, Code, Prices, Storage};

use crate::{Context, Experiment, Findings, ReproduceError};

/// How many clusters fit on a chip.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// Square millimetres for a switch's processing.
    pub budget: f64,
    /// The area of four clusters of eight cores, with what they share.
    pub four_clusters: f64,
    /// The area of a cluster without floating point.
    pub cluster: f64,
    /// The area of a cluster with an FPU for every core.
    pub cluster_with_fpu: f64,
    /// Cores of a cluster.
    pub cores: f64,
}

impl Experiment for Area {
    /// Findings: `shared`, the share of four clusters' area that belongs to none of them, in mm2, and `-share` of all;
    /// `clusters` that fit beside that, and their `cores`; `room-for-64`, the area of 64 clusters and
    /// what is shared.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        let shared = self.four_clusters - 4.0 * self.cluster;
        // "Half of it is L2": the area that belongs to no cluster.
        let clusters = ((self.budget - self.four_clusters / 2.0) / self.cluster_with_fpu).floor();
        findings.value("shared", shared);
        findings.value("shared-share", shared / self.four_clusters);
        findings.value("clusters", clusters);
        findings.value("cores", clusters * self.cores);
        let needed = 64.0 * self.cluster_with_fpu + self.four_clusters / 2.0;
        findings.value("room-for-64", needed);
        let left = self.budget - needed;
        findings.cause(
            "clusters",
            format!("64 clusters leave {left:.1} mm2 free; with budget = {:.0} it is 64", needed.ceil()),
        );
        findings.cause("cores", "these are the cores of that number of clusters");
        Ok(findings)
    }
}

/// The counted cycles of handlers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cycles {
    /// Bytes of a packet's elements.
    pub payload: u64,
}

impl Experiment for Cycles {
    /// Findings, for `c` and `xpulp` and each type: `<code>-<type>-element`, cycles to combine an element; `-packet`,
    /// cycles for a packet's elements, L; `-whole`, cycles of the packet's whole handler; `-ns-byte` at 1 GHz. `dma`:
    /// cycles to copy a packet by DMA.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for (name, code) in [("c", Code::C), ("xpulp", Code::Xpulp)] {
            for dtype in Prices::TYPES {
                let prices = Prices::new(code, dtype);
                let prices = prices.ok_or_else(|| ReproduceError::Bad(format!("there are no handlers for {dtype}")))?;
                let needs = Needs::Buffer(1);
                let elements = self.payload / dtype.size() as u64;
                let work = Work { combined: elements, ..Work::default() };
                let packet = prices.called(needs, 0, &work, 1).combine.total() as f64;
                let mut value = |key: &str, value: f64| findings.value(format!("{name}-{dtype}-{key}"), value);
                value("element", prices.steps(Storage::Single).of("combine"));
                value("packet", packet);
                value("whole", packet + prices.begin(needs));
                value("ns-byte", (packet + prices.begin(needs)) / self.payload as f64);
            }
        }
        findings.value("dma", self.payload as f64 / COPIED_PER_CYCLE as f64);
        let cause = "floats have no load that moves its address on, so that eight elements share two additions of addresses; words of \
                     integers have one, and take 4.00";
        findings.cause("xpulp-f32-element", cause);
        findings.cause("xpulp-f32-packet", cause);
        Ok(findings)
    }
}
