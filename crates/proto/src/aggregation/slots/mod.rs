//! Slots, by which SwitchML (NSDI 2021) recovers losses, for every protocol whose switches keep blocks in slots.
//!
//! A switch has a pool of slots, each with two versions. A host's packet is for one phase of one slot, and the slot's
//! next phase begins when the result has come. The version of the phase before keeps its result for ranks that ask
//! again (SwitchML, Algorithm 3). Where switches are in levels, a partial sum is sent up again in the same way (section
//! 7).
//!
//! Start with [`wire`]; then the switch's decision table (`switch/slot.rs`); then [`host`]. Protocols differ in a
//! [`Dialect`]: what their packets say beyond the slot and the collective, and how a switch combines the vectors of a
//! block.

pub mod host;
pub mod switch;
pub mod wire;

use tributary_numeric::BlockExponent;

use std::hash::Hash;

use crate::aggregation::agreement::ExponentHint;
use crate::aggregation::ordered::Arrangement;
use crate::aggregation::slots::host::Epochs;
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::Options;
use crate::contract::protocol::Refusal;
use crate::contract::tensor::Spec;
use crate::contract::values::Values;
use crate::reliability::recovery::Order;

pub use self::host::SlotHost;
pub use self::switch::SlotSwitch;
use self::wire::Kind;

/// What slots can sum: floats as floats; in fixed point, the floats that it can hold; integers always.
pub fn check(protocol: &'static str, spec: &Spec, options: &Options) -> Result<(), Refusal> {
    let numbers = Numbers::chosen(options);
    if Encoding::new(Values::Elements, numbers, spec).is_some() {
        return Ok(());
    }
    let (why, instead) = match Encoding::new(Values::Elements, Numbers::Float, spec) {
        Some(_) => {
            let why = match numbers {
                Numbers::Int8(_) => " in codes of 8 bits",
                Numbers::Thc4(_) => " in codes of 4 bits",
                Numbers::Float | Numbers::Fixed => " in fixed point",
            };
            (why, "choose numbers=float, or sum or average f32, f16 or bf16")
        }
        None => ("", "band, bor and bxor are for integers"),
    };
    Err(Refusal { protocol, spec: *spec, why, instead })
}

/// What a packet of one protocol says, beyond its slot and its collective: the end of its header.
pub trait Word: Copy + Send + 'static + Hash {
    /// Bytes of the word.
    const LEN: usize;
    /// The word of packets that have nothing to say.
    const NOTHING: Self;
    /// The word that changes nothing when it is joined.
    const NEUTRAL: Self;
    /// Reads the word at the end of the header of a packet for this collective; an error if no such word is possible.
    fn read(&mut self, bytes: &[u8], spec: &Spec) -> Result<(), DropReason>;
    /// Writes the word, with its reserved bytes.
    fn put(self, bytes: &mut [u8]);
    /// Joins the word of a child for the same block.
    fn join(&mut self, child: ChildId, said: &Self);
    /// The subtree of the block that the packet carries, if its sender may bring several subtrees.
    fn subtree(self) -> u16 {
        0
    }
    /// The same word for another subtree.
    #[must_use]
    fn with_subtree(self, _subtree: u16) -> Self {
        self
    }
    /// The order in which a block was combined, as a hash, if the protocol's packets tell it.
    fn order(self) -> Option<u32> {
        None
    }
    /// The exponent of a block in fixed point that ranks agree on, if the protocol's packets tell it (SwitchML §4.6).
    fn agreed(self) -> Option<BlockExponent> {
        None
    }
}

/// How protocols with slots differ. The dialect is read from a job's options once, when a machine is made.
pub trait Dialect: Copy + Send + 'static + Hash {
    /// What packets say beyond the slot and the collective.
    type Word: Word;
    /// The dialect of a job with these options and this many ranks, with switches in levels or without.
    fn of(options: &Options, levels: bool, world_size: u16) -> Self;
    /// What floats are summed as.
    fn numbers(&self) -> Numbers;
    /// True if hosts agree on exponents, as numbers that are scaled need.
    fn probes(&self) -> bool {
        self.numbers() != Numbers::Float
    }
    /// What a packet of this kind says about an exponent: about that of the sender's next block in the slot; in a PROBE,
    /// of this block. `exponent` is that of [`Dialect::says`].
    fn hint(&self, kind: Kind, exponent: impl Fn(u64) -> Option<BlockExponent>) -> ExponentHint {
        let known = match kind {
            Kind::Update => exponent(1),
            Kind::Probe => exponent(0),
            _ => None,
        };
        let is_norm = matches!(self.numbers(), Numbers::Thc4(_));
        known.map_or(ExponentHint::UNKNOWN, |exponent| ExponentHint { is_norm, ..ExponentHint::known(exponent) })
    }
    /// How many 16-bit floats a block has.
    fn narrow(&self) -> NarrowBlocks;
    /// Accumulators that a block may need at a switch with this many children, in a job of this many ranks.
    fn width(&self, children: usize, world_size: u16) -> usize;
    /// True if blocks are combined along one tree over all ranks, whatever the switches are. A switch then brings the
    /// subtrees of that tree that it can combine.
    fn is_over_ranks(&self) -> bool {
        false
    }
    /// How a block of a collective is combined from the vectors of this many children. Not called for fixed point.
    fn arrangement(&self, spec: &Spec, encoding: &Encoding, children: usize) -> Arrangement;
    /// The word of a host's packet of this kind. `exponent` returns the exponents of the slot's blocks that were
    /// submitted: of this block for 0, of the next block for 1.
    fn says(&self, host: &HostConfig, kind: Kind, exponent: impl Fn(u64) -> Option<BlockExponent>) -> Self::Word;
    /// The order in which a host sends its blocks, if it is not the order of the tensor.
    fn epochs(&self, host: &HostConfig) -> Option<Epochs>;
    /// The order in which answers are expected where the order of sending is that of the tensor.
    fn order(&self) -> Order {
        Order::Sent
    }
    /// The word of a switch that has all contributions, from the words that it has joined; `of_all`: the switch is
    /// above all ranks.
    fn concluded(&self, _spec: &Spec, joined: Self::Word, _of_all: bool) -> Self::Word {
        joined
    }
}
