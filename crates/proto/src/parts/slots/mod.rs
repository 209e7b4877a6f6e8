//! Slots: what SwitchML (NSDI 2021) recovers losses with, for every protocol whose switches keep blocks in slots.
//!
//! A switch has a pool of slots, each with two versions; a host's packet is for one phase of one slot, and the slot's next
//! phase begins when its result has come. The version of the phase before keeps its result, for those who ask again (SwitchML,
//! Algorithm 3); where switches are in levels, a partial sum is sent up again likewise (section 7).
//!
//! Start with [`wire`]; then the switch's decision table (`switch/slot.rs`); then [`host`]. Protocols differ in a [`Dialect`]:
//! what their packets say besides, and how a switch combines the vectors of a block.

pub mod host;
pub mod switch;
pub mod wire;

use tributary_numeric::BlockExponent;

use std::hash::Hash;

use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::Options;
use crate::contract::tensor::Spec;
use crate::parts::ordered::Arrangement;
use crate::parts::slots::host::Epochs;

pub use self::host::SlotHost;
pub use self::switch::SlotSwitch;
use self::wire::Kind;

/// What a packet of one protocol says, beyond its slot and its collective: the end of its header.
pub trait Word: Copy + Send + 'static + Hash {
    /// Its bytes.
    const LEN: usize;
    /// Of packets that have nothing to say.
    const NOTHING: Self;
    /// What changes nothing when it is joined.
    const NEUTRAL: Self;
    /// Reads it at the end of a header of a packet of this collective; says why it cannot be.
    fn read(&mut self, bytes: &[u8], spec: &Spec) -> Result<(), DropReason>;
    /// Writes it, reserved bytes too.
    fn put(self, bytes: &mut [u8]);
    /// Takes in what a child says of the same block.
    fn join(&mut self, child: ChildId, said: &Self);
    /// Which of the parts that its sender brings of a block a packet has, where it may bring several.
    fn part(self) -> u16 {
        0
    }
    /// The same of another part.
    #[must_use]
    fn with_part(self, _part: u16) -> Self {
        self
    }
    /// The order in which a block was combined, as a hash, where packets speak of one.
    fn order(self) -> Option<u32> {
        None
    }
    /// The exponent of a block of fixed point that ranks agree on, where packets speak of one (SwitchML §4.6).
    fn agreed(self) -> Option<BlockExponent> {
        None
    }
}

/// What protocols with slots differ in: read from a job's options once, when a machine is made.
pub trait Dialect: Copy + Send + 'static + Hash {
    /// What packets say besides.
    type Word: Word;
    /// The dialect of a job of so many ranks with these options, in levels or in none.
    fn of(options: &Options, levels: bool, world: u16) -> Self;
    /// What floats are summed as.
    fn numbers(&self) -> Numbers;
    /// How many 16-bit floats a block has.
    fn narrow(&self) -> NarrowBlocks;
    /// Accumulators that a block may need at a switch of so many children, of a job of so many ranks.
    fn width(&self, children: usize, world: u16) -> usize;
    /// Blocks are combined along one tree over all ranks, whatever the switches: a switch brings what it can combine of it.
    fn is_over_ranks(&self) -> bool {
        false
    }
    /// How a block of a collective is combined from the vectors of so many children; not asked of fixed point.
    fn arrangement(&self, spec: &Spec, encoding: &Encoding, children: usize) -> Arrangement;
    /// Whether its hosts send packets of this kind.
    fn sends(kind: Kind) -> bool;
    /// What a host says with a packet of this kind. `exponent` knows those of the slot's blocks: of this one (0), of the next
    /// one (1), where they were submitted.
    fn says(&self, host: &HostConfig, kind: Kind, exponent: impl Fn(u64) -> Option<BlockExponent>) -> Self::Word;
    /// The order in which a host sends its blocks, where it is not that of the tensor.
    fn epochs(&self, host: &HostConfig) -> Option<Epochs>;
    /// What a switch that has all contributions says, of what it has joined; `of_all`, if it is the one above all.
    fn concluded(&self, _spec: &Spec, joined: Self::Word, _of_all: bool) -> Self::Word {
        joined
    }
}
