//! A fabric whose hosts and switches run Canary.

use tributary_proto::canary::PROTOCOL;
use tributary_proto::canary::wire::{HEADER_LEN, Header, Kind};
use tributary_proto::contract::config::{HostConfig, JobConfig, SharedSwitchConfig};
use tributary_proto::contract::ids::{JobId, NodeId, Rank};
use tributary_proto::contract::values::Values;

use crate::harness::fabric::{self, Cables};
use crate::harness::fate::{self, Words};
pub use crate::harness::fate::{Fate, bad_cables};
use crate::setup::{job, plan, timers};

/// Canary's kinds and headers.
pub struct CanaryWords;

impl Words for CanaryWords {
    type Kind = Kind;
    type Header = Header;

    fn read(bytes: &[u8]) -> (Kind, Header) {
        let kind = Kind::of(bytes).expect("a kind of Canary's");
        (kind, Header::parse(bytes).expect("a header of Canary's"))
    }
}

pub type Fabric = fabric::Fabric<CanaryWords>;
pub type Sent = fate::Sent<CanaryWords>;

impl Sent {
    pub fn vector_bytes(&self) -> usize {
        self.len - HEADER_LEN
    }
}

impl Fabric {
    /// Leaves with hosts, each joined to every spine; trees end in the leader's own leaf.
    pub fn leaf_spine(leaves: u32, spines: u32, per_leaf: u32, slots: u16, config: SharedSwitchConfig) -> Fabric {
        let cables = Cables::leaf_spine(leaves, spines, per_leaf);
        Fabric::with_roots(cables, leaves * per_leaf, Vec::new(), slots, config)
    }

    /// Trees end in these switches.
    pub fn with_roots(
        cables: Cables,
        hosts: u32,
        roots: Vec<NodeId>,
        slots: u16,
        config: SharedSwitchConfig,
    ) -> Fabric {
        Fabric::of_job(cables, roots, job(hosts as u16, slots), config)
    }

    /// The hosts run this job.
    pub fn of_job(cables: Cables, roots: Vec<NodeId>, job: JobConfig, config: SharedSwitchConfig) -> Fabric {
        let hosts = u32::from(job.world_size);
        let of_fabric = cables.plan(hosts, roots);
        let machine = move |rank: usize| {
            let worker = HostConfig::worker(job.clone(), Rank(rank as u16));
            PROTOCOL.host(Values::Elements, &HostConfig { timers: timers(), fabric: of_fabric.clone(), ..worker })
        };
        Fabric::new(&PROTOCOL, cables, (hosts, Box::new(machine)), config, Box::new(|_, _| plan(JobId(1))))
    }
}
