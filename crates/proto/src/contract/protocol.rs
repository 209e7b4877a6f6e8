//! A protocol as a value: all that a driver, a control plane or a program needs to know of it.
//!
//! Each protocol's folder has one `pub static PROTOCOL`, and `protocols.rs` lists them. Nothing outside a protocol's
//! folder asks which protocol it is; it asks what the value says.

use std::fmt;
use std::hash::{Hash, Hasher};

use tributary_numeric::{DType, ReduceOp};

use crate::contract::config::{HostConfig, JobConfig, SharedSwitchConfig, SwitchConfig};
use crate::contract::host::Host;
use crate::contract::ids::TreeId;
use crate::contract::numbers::Numbers;
use crate::contract::options::{OptionSet, Options};
use crate::contract::sum_tree::SumTree;
use crate::contract::switch::{SharedSwitch, Switch};
use crate::contract::tensor::Spec;
use crate::contract::time::Span;
use crate::contract::values::Values;

/// Where a protocol's jobs have machines besides those at hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Nowhere: switches forward.
    Hosts,
    /// In each switch of a tree that is planned before the job starts; a machine serves one job.
    Trees,
    /// In every switch of a fabric, whomever a packet is for; all jobs of the protocol share one machine a switch.
    EveryHop,
}

/// Why a protocol cannot do what was asked for. The text is a sentence that says what would work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{protocol} cannot do a {spec}{why}: {instead}")]
pub struct Refusal {
    /// The protocol's name.
    pub protocol: &'static str,
    /// What was asked for.
    pub spec: Spec,
    /// The cause, where it is not plain from the rest; empty, or it begins with a space.
    pub why: &'static str,
    /// What would work.
    pub instead: &'static str,
}

/// The sizes that a job's memory in one shard of one switch follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobShape<'a> {
    /// Slots of the shard.
    pub slots: u16,
    /// Elements of four bytes in a packet.
    pub elements_per_packet: u16,
    /// Workers and switches directly below the switch.
    pub children: u16,
    /// Ranks of the whole job.
    pub world: u16,
    /// Switches in levels sum for the job.
    pub levels: bool,
    /// What the job's members have chosen.
    pub options: &'a Options,
}

/// What one packet is, for traces, captures and people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// What the packet is for; empty if its kind is unknown.
    pub kind: &'static str,
    /// The slot, descriptor or aggregator that it is for, where it is for one.
    pub slot: Option<u32>,
    /// Bytes of header; what follows is the vector or a body.
    pub header_len: usize,
    /// What follows the header is a vector.
    pub has_vector: bool,
}

/// Whether a protocol with these options can do a collective.
pub type Can = fn(&Spec, &Options) -> Result<(), Refusal>;
/// Makes a host's machine: a worker's or a server's.
pub type MakeHost = fn(Values, &HostConfig) -> Box<dyn Host>;
/// Makes a switch's machine for one job in one shard.
pub type MakeSwitch = fn(Values, &SwitchConfig) -> Box<dyn Switch>;
/// Makes the machine that all jobs of a protocol share in one switch.
pub type MakeShared = fn(Values, &SharedSwitchConfig) -> Box<dyn SharedSwitch>;

/// The bits of a sum over ranks whose data these are, by rank, as big-endian elements of one length. `None` of what has no
/// meaning: an operator that the type does not take, a rank that is not there, a switch without children.
pub type Recompute = fn(DType, ReduceOp, &[Vec<u8>], &SumTree) -> Option<Vec<u8>>;

/// The machine that all jobs of a protocol share in one switch, and what an operator may choose for it.
pub struct Shared {
    /// Makes it.
    pub machine: MakeShared,
    /// What an operator may choose, the same at every switch.
    pub options: OptionSet,
    /// Bytes that the machine holds before any job has begun.
    pub memory: fn(Values, &SharedSwitchConfig) -> u64,
    /// The longest that a switch keeps a packet to sum it with others.
    pub longest_wait: fn(&Options) -> Span,
    /// The most packets of one job that a switch has room for.
    pub room: fn(&Options) -> u64,
    /// Makes the machine of a server on a host of its own, where jobs can have some: those that are on offer when a job is
    /// formed. A job that gets none has its servers with its ranks, if it needs any.
    pub server: Option<MakeHost>,
    /// Where a job of so many ranks, so many servers on hosts of their own and with these options sums the blocks that
    /// switches do not, and why: what follows "7 % (812 blocks) ".
    pub elsewhere: fn(u16, u16, &Options) -> String,
}

/// A protocol that this build speaks.
pub struct Protocol {
    /// The code in the common header; no two protocols have the same.
    pub code: u8,
    /// The name on the command line, in files and in metrics.
    pub name: &'static str,
    /// One line that says who sums, for help texts.
    pub about: &'static str,
    /// Bytes of header before the vector of a full packet.
    pub header_len: usize,
    /// Where its jobs have machines in the network.
    pub placement: Placement,
    /// Each host passes results on to others, and so needs room for all of them, whatever part its caller wants.
    pub passes_results_on: bool,
    /// A reduce brings its result to its root alone, and a broadcast takes nothing from the others: so a reduce for each rank is
    /// a reduce-scatter that sends down what is wanted, and a broadcast from each an all-gather that sends up what is new.
    pub spares_others: bool,
    /// What members of a job may choose.
    pub options: OptionSet,
    /// What it sums floats as.
    pub numbers: fn(&Options) -> Numbers,
    /// Whether it can do a collective; the one place where a collective is refused, before anything is sent.
    pub can: Can,
    /// The same of sparse collectives; `None` if none of its jobs can.
    pub can_sparse: Option<Can>,
    /// Bytes that a job's own machine takes in one shard of one switch, or its tables in the machine that jobs share.
    pub memory: fn(&JobShape<'_>) -> u64,
    /// A worker's machine.
    pub host: MakeHost,
    /// A switch's machine for one job; only where the placement is [`Placement::Trees`].
    pub switch: Option<MakeSwitch>,
    /// Its machines in switches may be given other numbers of slots while their jobs run ([`Switch::resize`]), so that
    /// jobs divide a switch's memory anew as they come and go.
    pub resizes: bool,
    /// Its trees may be planted anew while their jobs run, over other switches: hosts keep what a machine loses, and agree with
    /// machines that know nothing on where to go on.
    pub replants: bool,
    /// The bits of its sums of floats, where they follow from the inputs and the tree alone.
    pub recompute: Option<Recompute>,
    /// What jobs share in each switch; only where the placement is [`Placement::EveryHop`].
    pub shared: Option<Shared>,
    /// A server's machine, where hosts sum or answer for others.
    pub server: Option<MakeHost>,
    /// What a packet is whose common header was checked.
    pub describe: fn(&[u8]) -> Description,
    /// Which of the job's trees a packet is for whose common header was checked; `None` if it is for none of them.
    pub tree_of: fn(&JobConfig, &[u8]) -> Option<TreeId>,
}

impl Protocol {
    /// Whether it can do a sparse collective.
    pub fn can_sparse(&self, spec: &Spec, options: &Options) -> Result<(), Refusal> {
        let (why, instead) = (" of a sparse tensor", "take a protocol and options that sum sparse tensors");
        let refused = || Err(Refusal { protocol: self.name, spec: *spec, why, instead });
        self.can_sparse.map_or_else(refused, |can| can(spec, options))
    }

    /// True if its sums are made on the way, by switches, and not at hosts.
    pub fn sums_in_network(&self) -> bool {
        self.placement != Placement::Hosts
    }

    /// The machine of a server on a host of its own, where jobs have servers or can have some.
    pub fn server_machine(&self) -> Option<MakeHost> {
        self.server.or_else(|| self.shared.as_ref()?.server)
    }

    /// A worker's machine.
    pub fn host(&self, values: Values, config: &HostConfig) -> Box<dyn Host> {
        (self.host)(values, config)
    }

    /// A switch's machine for one job in one shard; `None` where the protocol needs none of the job's own.
    pub fn switch(&self, values: Values, config: &SwitchConfig) -> Option<Box<dyn Switch>> {
        self.switch.map(|make| make(values, config))
    }

    /// Bytes of shared memory that a job is admitted with at a switch with so many of its members or switches below.
    pub fn share_bytes(&self, job: &JobConfig, children: u16) -> u64 {
        let JobConfig { slots, elements_per_packet, world, levels, ref options, .. } = *job;
        (self.memory)(&JobShape { slots, elements_per_packet, children, world, levels, options })
    }

    /// The machine that all jobs of the protocol share in one switch of a fabric, where they do.
    pub fn shared_switch(&self, values: Values, config: &SharedSwitchConfig) -> Option<Box<dyn SharedSwitch>> {
        self.shared.as_ref().map(|shared| (shared.machine)(values, config))
    }
}

impl PartialEq for Protocol {
    fn eq(&self, other: &Protocol) -> bool {
        self.code == other.code
    }
}

impl Eq for Protocol {}

impl Hash for Protocol {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.code.hash(state);
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
