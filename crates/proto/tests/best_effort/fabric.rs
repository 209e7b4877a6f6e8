//! A fabric whose hosts and switches run a protocol of the family.

use tributary_proto::aggregation::best_effort::wire::{Header, Kind};
use tributary_proto::contract::config::{FabricPlan, HostConfig, JobConfig, SharedJob, TreeLeaf};
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{JobId, NodeId, Rank, ServerId};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::Lag;
use tributary_proto::contract::values::Values;

pub use crate::harness::fabric::DELAY;
use crate::harness::fabric::{self, Cables};
use crate::harness::fate::{self, Words};
pub use crate::harness::fate::{Fate, bad_cables};
use crate::setup::{job, switch, timers};

/// The family's kinds and headers.
pub struct BestEffortWords;

impl Words for BestEffortWords {
    type Kind = Kind;
    type Header = Header;

    fn read(bytes: &[u8]) -> (Kind, Header) {
        let kind = Kind::of(bytes).expect("a kind of the family's");
        (kind, Header::parse(bytes).expect("a header of the family's"))
    }
}

pub type Fabric = fabric::Fabric<BestEffortWords>;
pub type Sent = fate::Sent<BestEffortWords>;

/// What a test chooses.
#[derive(Clone)]
pub struct Choice<'a> {
    pub protocol: &'static Protocol,
    pub slots: u16,
    /// The last ones of the hosts are servers, and bring nothing.
    pub servers: u16,
    pub job: &'a [(&'a str, &'a str)],
    pub switch: &'a [(&'a str, &'a str)],
}

impl Choice<'_> {
    /// A window of 16 blocks, and what people get who choose nothing.
    pub fn of(protocol: &'static Protocol) -> Choice<'static> {
        Choice { protocol, slots: 16, servers: 0, job: &[], switch: &[] }
    }
}

/// The machine of a rank, or of a server on a host of its own: these are numbered after the ranks.
fn machine(protocol: &'static Protocol, job: &JobConfig, plan: &FabricPlan, rank: Rank) -> Box<dyn Host> {
    let (trees, serves) = (TreeLeaf::of_rank(rank), rank.0.checked_sub(job.world_size).map(ServerId));
    let config =
        HostConfig { trees, serves, timers: timers(), fabric: plan.clone(), ..HostConfig::worker(job.clone(), rank) };
    match serves {
        Some(_) => protocol.server_machine().expect("jobs can have servers")(Values::Elements, &config),
        None => protocol.host(Values::Elements, &config),
    }
}

impl Fabric {
    /// Hosts round one switch.
    pub fn star(hosts: u32, choice: &Choice<'_>) -> Fabric {
        Fabric::leaf_spine(1, 0, hosts, choice)
    }

    /// Leaves with hosts, each joined to every spine.
    pub fn leaf_spine(leaves: u32, spines: u32, per_leaf: u32, choice: &Choice<'_>) -> Fabric {
        Fabric::over(Cables::leaf_spine(leaves, spines, per_leaf), leaves * per_leaf, choice)
    }

    /// Switches in a row, with these numbers of hosts: the way between some leads through others' switch.
    pub fn row(per_switch: &[u32], choice: &Choice<'_>) -> Fabric {
        Fabric::over(Cables::row(per_switch), per_switch.iter().sum(), choice)
    }

    fn over(cables: Cables, hosts: u32, choice: &Choice<'_>) -> Fabric {
        let (protocol, plan) = (choice.protocol, cables.plan(hosts, Vec::new()));
        let job = job(protocol, hosts as u16 - choice.servers, choice.slots, choice.job);
        let config = switch(protocol, choice.switch);
        let of_switches = (job.clone(), plan.clone());
        let machine = move |host: usize| machine(protocol, &job, &plan, Rank(host as u16));
        let shared_job = move |node: NodeId, cables: &Cables| {
            let (job, fabric) = of_switches.clone();
            let ports = fabric.hosts.iter().map(|&host| cables.port(node, host)).collect();
            SharedJob { job, fabric, ports, trees: Vec::new(), share_bytes: 0 }
        };
        Fabric::new(protocol, cables, (hosts, Box::new(machine)), config, Box::new(shared_job))
    }

    /// Takes the job out of a switch.
    pub fn remove_job(&mut self, switch: usize) {
        self.switches[switch].remove(JobId(1));
    }

    /// The rank that a switch says its results wait for.
    pub fn lag(&self, switch: usize) -> Option<Lag> {
        self.switches[switch].report(JobId(1)).expect("the job").machine.expect("it is shared").lag
    }
}
