//! What is explored: which machines, and how many faults.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::options::{Defaults, Kind, Options};
use tributary_proto::contract::protocol::{Protocol, Refusal};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::protocols;
use tributary_proto::switch_options::{Given, SwitchOptionError, SwitchOptions};

/// How many slots, descriptors or aggregators of a switch's shared memory are enough here.
const SMALL: u64 = 8;

/// A small system. Its states are finite because faults and early timers are counted.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The protocol whose machines run.
    pub protocol: &'static Protocol,
    /// Its options, as the job's members chose them.
    pub options: Options,
    /// The options of switches for memory that jobs share.
    pub switches: SwitchOptions,
    /// How many ranks there are, each on a host of its own.
    pub ranks: u16,
    /// How many slots the job has.
    pub slots: u16,
    /// How many blocks each collective has: full packets.
    pub blocks: u32,
    /// The elements' type.
    pub dtype: DType,
    /// How many collectives there are. Each rank submits them in their order, each at any time.
    pub collectives: u8,
    /// Leaf switches; 0 for one switch with all hosts on it.
    pub leaves: u16,
    /// Spine switches, each connected to all leaves.
    pub spines: u16,
    /// How many packets may be lost.
    pub losses: u8,
    /// How many packets may arrive twice.
    pub duplicates: u8,
    /// How many timers may expire early: while packets are in flight, or before another machine's timer that is due
    /// first.
    pub timeouts: u8,
    /// The search stops, incomplete, after this many states.
    pub most_states: u64,
}

/// Why a system cannot be explored. The text is a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundsError {
    /// A number that is too small or too large to be explored.
    #[error("{what} are {given}: {least} to {most} can be explored")]
    Range {
        /// What the number counts.
        what: &'static str,
        /// The number.
        given: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// The protocol cannot sum such collectives.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Slots that do not divide among the servers.
    #[error("{slots} slots do not divide among {servers} servers: choose a multiple")]
    Slots {
        /// The slots.
        slots: u16,
        /// The servers.
        servers: u16,
    },
    /// The protocol's machines cannot be copied.
    #[error("the machines of {0} cannot be explored: they have no state that can be copied")]
    Opaque(&'static str),
    /// A tree that cannot be planned.
    #[error("no tree can be planned: {0}")]
    Tree(String),
}

impl Bounds {
    /// Elements of four bytes in a full packet. A vector is a fingerprint, so that few elements are as good as many.
    pub(crate) const ELEMENTS_PER_PACKET: u16 = 2;

    /// A sum on two ranks at one switch, with one of each fault.
    pub fn small(protocol: &'static Protocol) -> Bounds {
        Bounds {
            protocol,
            options: protocol.options.defaults(),
            switches: Bounds::switches_with(&Given::new()).expect("each is within its own bounds"),
            ranks: 2,
            slots: 2,
            blocks: 2,
            dtype: DType::I32,
            collectives: 1,
            leaves: 0,
            spines: 1,
            losses: 1,
            duplicates: 0,
            timeouts: 1,
            most_states: 1 << 32,
        }
    }

    /// The switches' options for memory that jobs share: the chosen ones, else the smallest number of everything that is counted. A
    /// machine is copied and compared as a whole, so that unused memory costs time.
    pub fn switches_with(chosen: &Given) -> Result<SwitchOptions, SwitchOptionError> {
        let mut given = Given::new();
        for shared in protocols::ALL.iter().filter_map(|protocol| protocol.shared.as_ref()) {
            let smallest = shared.options.specs.iter().filter_map(|spec| match spec.kind {
                Kind::Count { least, .. } => {
                    let usual = spec.default.parse().unwrap_or(SMALL);
                    Some((spec.name.to_owned(), SMALL.min(usual).max(least).to_string()))
                }
                _ => None,
            });
            given.insert(shared.options.protocol.to_owned(), smallest.collect());
        }
        for (protocol, options) in chosen {
            given.entry(protocol.clone()).or_default().extend(options.clone());
        }
        SwitchOptions::read(&given, Defaults::Simulated)
    }

    /// The kind of all collectives.
    pub fn spec(&self) -> Spec {
        let bytes = 4 * u32::from(Bounds::ELEMENTS_PER_PACKET);
        let op = if self.quorum().is_some() { ReduceOp::Avg } else { ReduceOp::Sum };
        Spec::allreduce(self.blocks * (bytes / self.dtype.size() as u32).max(1), self.dtype, op)
    }

    /// The fewest ranks that a result may cover; `None` if no result may lack ranks.
    pub fn quorum(&self) -> Option<u16> {
        self.protocol.options.quorum(&self.options, self.ranks)
    }

    /// Checks that these bounds describe a scenario.
    pub fn check(&self) -> Result<(), BoundsError> {
        let within = |what, given: u64, least, most| match (least..=most).contains(&given) {
            true => Ok(()),
            false => Err(BoundsError::Range { what, given, least, most }),
        };
        within("ranks", self.ranks.into(), 1, 8)?;
        within("slots", self.slots.into(), 1, 64)?;
        within("blocks", self.blocks.into(), 1, 64)?;
        within("collectives", self.collectives.into(), 1, 8)?;
        within("leaves", self.leaves.into(), 0, 8)?;
        within("spines", self.spines.into(), 1, 8)?;
        (self.protocol.check)(&self.spec(), &self.options)?;
        let servers = self.servers();
        if servers > 0 && !self.slots.is_multiple_of(servers) {
            return Err(BoundsError::Slots { slots: self.slots, servers });
        }
        Ok(())
    }

    /// How many servers the job has: every rank is one if the protocol sums only at servers.
    pub(crate) fn servers(&self) -> u16 {
        let sums_at_servers = self.protocol.server.is_some() && !self.protocol.sums_in_network();
        if sums_at_servers { self.ranks } else { 0 }
    }
}
