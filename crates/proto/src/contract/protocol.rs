//! A protocol as a value: all that a driver, a control plane or a program needs to know about a protocol.
//!
//! Each protocol's folder has one `pub static PROTOCOL`, written as the differences from [`Protocol::BASE`], and
//! `protocols.rs` lists these values. Code outside a protocol's folder never asks which protocol it has; it reads the
//! value.

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
    /// Nowhere: switches only forward.
    Hosts,
    /// In each switch of a tree that is planned before the job starts; a machine serves one job.
    Trees,
    /// In every switch of a fabric, even if a packet is for another node; all jobs of the protocol share one machine in
    /// each switch.
    EveryHop,
}

/// Why a protocol cannot do a collective. The text is a sentence that says what would work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{protocol} cannot do a {spec}{why}: {instead}")]
pub struct Refusal {
    /// The protocol's name.
    pub protocol: &'static str,
    /// The collective.
    pub spec: Spec,
    /// The cause, if the rest does not make it clear: empty, or text that begins with a space.
    pub why: &'static str,
    /// What would work.
    pub instead: &'static str,
}

/// The sizes from which a job's memory in one shard of one switch follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardShape<'a> {
    /// Slots of the shard.
    pub slots: u16,
    /// Elements of four bytes in a packet.
    pub elements_per_packet: u16,
    /// Workers and switches directly below the switch.
    pub children: u16,
    /// Ranks of the whole job.
    pub world_size: u16,
    /// Switches in levels sum for the job.
    pub levels: bool,
    /// The options that the job's members have chosen.
    pub options: &'a Options,
}

/// A description of one packet, for traces, captures and people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// What the packet is for; empty if its kind is unknown.
    pub kind: &'static str,
    /// The slot, descriptor or aggregator that the packet is for, if it is for one.
    pub slot: Option<u32>,
    /// Bytes of header. A vector or a body follows it.
    pub header_len: usize,
    /// True if a vector follows the header.
    pub has_vector: bool,
}

impl Description {
    /// A packet of an unknown kind.
    pub const UNKNOWN: Description = Description { kind: "", slot: None, header_len: 0, has_vector: false };
}

/// Refuses collectives whose operator has no meaning for their type, in the name of a protocol.
pub fn check_meaning(protocol: &'static str, spec: &Spec) -> Result<(), Refusal> {
    let instead = "band, bor and bxor are for integers";
    match tributary_numeric::native(spec.dtype, spec.op) {
        Some(_) => Ok(()),
        None => Err(Refusal { protocol, spec: *spec, why: "", instead }),
    }
}

/// Checks that a protocol with these options can do a collective.
pub type Check = fn(&Spec, &Options) -> Result<(), Refusal>;
/// Makes a host's machine: a worker's or a server's.
pub type MakeHost = fn(Values, &HostConfig) -> Box<dyn Host>;
/// Makes a switch's machine for one job in one shard.
pub type MakeSwitch = fn(Values, &SwitchConfig) -> Box<dyn Switch>;
/// Makes the machine that all jobs of a protocol share in one switch.
pub type MakeShared = fn(Values, &SharedSwitchConfig) -> Box<dyn SharedSwitch>;

/// The bits of a sum over ranks whose data are these, by rank: big-endian elements, all of one length. `None` if the
/// arguments have no meaning: an operator that the type does not take, a rank without data, a switch without children.
pub type Recompute = fn(DType, ReduceOp, &[Vec<u8>], &SumTree) -> Option<Vec<u8>>;

/// The machine that all jobs of a protocol share in one switch, and what an operator may choose for it.
pub struct Shared {
    /// Makes the machine.
    pub machine: MakeShared,
    /// The options of an operator, which are the same at every switch.
    pub options: OptionSet,
    /// Bytes that the machine holds before any job has begun.
    pub memory: fn(Values, &SharedSwitchConfig) -> u64,
    /// The longest time for which a switch keeps a packet to sum it with others.
    pub longest_wait: fn(&Options) -> Span,
    /// The most packets of one job that a switch can hold.
    pub capacity: fn(&Options) -> u64,
    /// Makes the machine of a dedicated server, if jobs can have such servers. A job gets the servers that are on offer
    /// when it is formed. If a job needs servers and gets none, its ranks are its servers too.
    pub server: Option<MakeHost>,
    /// Where a job sums the blocks that switches do not sum, and why. The arguments: its ranks, its dedicated servers,
    /// its options. The text follows "7 % (812 blocks) ".
    pub fallback_note: fn(u16, u16, &Options) -> String,
}

/// A protocol that this build speaks.
pub struct Protocol {
    /// The code in the common header; no two protocols have the same.
    pub code: u8,
    /// The name on the command line, in files and in metrics.
    pub name: &'static str,
    /// One line for help texts that says which machines sum.
    pub about: &'static str,
    /// Bytes of header before the vector of a full packet.
    pub header_len: usize,
    /// Where the protocol's jobs have machines in the network.
    pub placement: Placement,
    /// True if each host forwards results to others, and so needs memory for all of them, whatever range its caller
    /// wants.
    pub hosts_forward_results: bool,
    /// True if a reduce brings its result to its root alone, and a broadcast takes nothing from ranks that are not its
    /// root. A reduce-scatter is then made of one reduce for each rank and sends down only what is wanted; an
    /// all-gather is made of one broadcast from each rank and sends up only what is new.
    pub rooted_is_unicast: bool,
    /// The options that members of a job may choose.
    pub options: OptionSet,
    /// How the protocol sums floats.
    pub numbers: fn(&Options) -> Numbers,
    /// Checks that the protocol can do a collective. Collectives are refused nowhere else, and before anything is sent.
    pub check: Check,
    /// The same check for sparse collectives; `None` if no job of the protocol can do any.
    pub check_sparse: Option<Check>,
    /// Bytes that a job's own machine takes in one shard of one switch, or its tables in the machine that jobs share.
    pub memory: fn(&ShardShape<'_>) -> u64,
    /// A worker's machine.
    pub host: MakeHost,
    /// A switch's machine for one job; only where the placement is [`Placement::Trees`].
    pub switch: Option<MakeSwitch>,
    /// True if a worker may have a machine on each of several cores, which divide the slots among them
    /// ([`CoreSlots`](super::config::CoreSlots)), in a job with these options.
    pub divides_slots: fn(&Options) -> bool,
    /// True if machines in switches may get another number of slots while their jobs run ([`Switch::resize`]), so that
    /// jobs divide a switch's memory again whenever one comes or goes.
    pub resizes: bool,
    /// True if a tree can be planned again, over other switches, while its job runs: hosts keep what a machine loses,
    /// and agree with the new machines on where to continue.
    pub survives_tree_loss: bool,
    /// The bits of the protocol's sums of floats, if they follow from the inputs and the tree alone.
    pub recompute: Option<Recompute>,
    /// The machine that jobs share in each switch; only where the placement is [`Placement::EveryHop`].
    pub shared: Option<Shared>,
    /// A server's machine, if hosts sum or answer for other hosts.
    pub server: Option<MakeHost>,
    /// Describes a packet whose common header was checked.
    pub describe: fn(&[u8]) -> Description,
    /// Which of the job's trees a packet is for; `None` if it is for none of them. The packet's common header was
    /// checked.
    pub tree_of: fn(&JobConfig, &[u8]) -> Option<TreeId>,
}

impl Protocol {
    /// What most protocols have in common: hosts sum, collectives are dense, and there are no options. A protocol
    /// overrides at least `code`, `name`, `about`, `header_len`, `options`, `check`, `host` and `describe`.
    pub const BASE: Protocol = Protocol {
        code: 0,
        name: "",
        about: "",
        header_len: 0,
        placement: Placement::Hosts,
        hosts_forward_results: false,
        rooted_is_unicast: false,
        options: OptionSet::none(""),
        numbers: |_| Numbers::Float,
        check: |_, _| Ok(()),
        check_sparse: None,
        memory: |_| 0,
        host: |_, _| unreachable!("each protocol has its own host machine"),
        switch: None,
        divides_slots: |_| false,
        resizes: false,
        survives_tree_loss: false,
        recompute: None,
        shared: None,
        server: None,
        describe: |_| Description::UNKNOWN,
        tree_of: |_, _| None,
    };

    /// Checks that the protocol can do a sparse collective.
    pub fn check_sparse(&self, spec: &Spec, options: &Options) -> Result<(), Refusal> {
        let (why, instead) = (" of a sparse tensor", "take a protocol and options that sum sparse tensors");
        let refused = || Err(Refusal { protocol: self.name, spec: *spec, why, instead });
        self.check_sparse.map_or_else(refused, |check| check(spec, options))
    }

    /// True if a worker may have several cores in a job with the default options.
    pub fn divides_slots_by_default(&self) -> bool {
        (self.divides_slots)(&self.options.defaults())
    }

    /// True if switches sum; false if only hosts do.
    pub fn sums_in_network(&self) -> bool {
        self.placement != Placement::Hosts
    }

    /// The machine of a dedicated server, if jobs have servers or can have some.
    pub fn server_machine(&self) -> Option<MakeHost> {
        self.server.or_else(|| self.shared.as_ref()?.server)
    }

    /// A worker's machine.
    pub fn host(&self, values: Values, config: &HostConfig) -> Box<dyn Host> {
        (self.host)(values, config)
    }

    /// A switch's machine for one job in one shard; `None` if the protocol needs no machine of the job's own.
    pub fn switch(&self, values: Values, config: &SwitchConfig) -> Option<Box<dyn Switch>> {
        self.switch.map(|make| make(values, config))
    }

    /// Bytes of shared memory with which a job is admitted, at a switch with this many children.
    pub fn share_bytes(&self, job: &JobConfig, children: u16) -> u64 {
        let JobConfig { slots, elements_per_packet, world_size, levels, ref options, .. } = *job;
        (self.memory)(&ShardShape { slots, elements_per_packet, children, world_size, levels, options })
    }

    /// The machine that all jobs of the protocol share in one switch of a fabric, if they share one.
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
