//! A server: it sums what switches have not summed, answers all ranks with the result, and keeps the result for ranks
//! that ask.
//!
//! It is on the host of one rank, whose own part it adds last, or on a host of its own. Contributions come singly or in
//! sums of switches. A sum that brings no rank twice is added. A sum that has all ranks that came before replaces them.
//! Any other sum is dropped, and the ranks that are then missing are asked by name. A rank that asks for a complete
//! block gets its result.

mod gather;
pub mod served;
mod transmit;

use std::collections::VecDeque;

use tributary_numeric::BlockExponent;

use self::served::{Blocks, Served, State};
use super::Rules;
use super::codec::{Codec, widest_lanes};
use super::topology::Topology;
use super::wire::{Flags, Header};
use crate::aggregation::missing_ranks::Ranks;
use crate::aggregation::report::Mismatch;
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::values::Values;
use crate::contract::wire::COMMON_LEN;

/// A packet that the server must send. Packets are written when they leave, from what the server knows then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outgoing {
    /// A gradient has arrived.
    Gack {
        /// The gradient's header.
        header: Header,
        /// The gradient was marked on its way.
        marked: bool,
    },
    /// The result, or the order to send again: to all ranks behind the switch of this rank.
    AnswerRack(u64, Rank),
    /// The same to one rank.
    Answer(u64, Rank),
    /// The ranks that have not been heard.
    Report(u64, Rank),
    /// The server lacks this rank's part, and other ranks wait for it.
    Prompt(u64, Rank),
    /// The rank must send its block again.
    Need(u64, Rank),
    /// Ranks disagree.
    Mismatch(u64, Rank),
}

/// One server of a job.
#[derive(Clone, Hash)]
pub struct Server {
    values: Values,
    rules: Rules,
    /// The common header of its packets, without a kind.
    common: [u8; COMMON_LEN],
    own: Rank,
    world_size: u16,
    /// How many ranks' parts come in packets.
    expected: u16,
    /// The server is on the host of a rank, which contributes.
    brings: bool,
    blocks: Blocks,
    /// Packets to send, in the order in which they were queued.
    pub outbox: VecDeque<Outgoing>,
    /// Blocks that may be complete.
    pub ready: VecDeque<u64>,
    /// How many gradients have come because the switch of the server had no room, modulo 2^32.
    received: u32,
    /// How many orders to send a block again it has given.
    orders: u64,
    /// The first block of this server that is not complete.
    first_open: u64,
    /// The distance from one of its blocks to the next.
    step: u64,
    /// The set of the ranks of one packet.
    scratch: Ranks,
}

impl Server {
    /// The server of a rank.
    pub fn new(values: Values, rules: Rules, config: &HostConfig, topology: &Topology) -> Server {
        let job = &config.job;
        let lane_bytes = widest_lanes(values, job.elements_per_packet);
        let mut common = [0; COMMON_LEN];
        job.common().emit(&mut common);
        Server {
            values,
            rules,
            common,
            own: config.rank,
            world_size: job.world_size,
            expected: topology.contributors(),
            brings: !topology.has_dedicated_servers(),
            blocks: Blocks::new(job.slots.max(1), topology.servers(), job.world_size, lane_bytes),
            outbox: VecDeque::new(),
            ready: VecDeque::new(),
            received: 0,
            orders: 0,
            first_open: topology.first_block_of(config.rank).unwrap_or(0),
            step: topology.servers().into(),
            scratch: Ranks::new(job.world_size),
        }
    }

    /// All ranks except the server's own.
    fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let own = self.own;
        (0..self.world_size).map(Rank).filter(move |&rank| rank != own)
    }

    /// The state of a block.
    pub fn get(&self, block: u64) -> Option<&Served> {
        self.blocks.get(block)
    }

    /// The first block of this server that is not complete.
    pub fn first_open(&self) -> u64 {
        self.first_open
    }

    /// How many gradients have come because the switch had no room.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// What must be done about a block.
    pub fn standing(&self, block: u64) -> Standing {
        match self.blocks.get(block) {
            Some(served) if served.own || !self.brings => match served.state {
                State::Refused(mismatch) => Standing::Refused(mismatch),
                State::Gathering if served.have.len() == self.expected => Standing::Complete,
                State::Gathering | State::Done => Standing::Waits,
            },
            Some(Served { state: State::Refused(mismatch), .. }) => Standing::Refused(*mismatch),
            _ => Standing::Waits,
        }
    }

    /// All contributions are there: writes the sum, with the own rank's vector if there is one, to `vector`, and tells
    /// all ranks.
    pub fn finish(&mut self, block: u64, codec: &Codec, own: Option<&[u8]>, vector: &mut [u8], topology: &Topology) {
        let world_size = self.world_size;
        let Some(served) = self.blocks.get_mut(block) else { return };
        if let Some(own) = own.filter(|_| served.elements > 0) {
            let elements = served.elements;
            served.add(codec, own, elements);
        }
        served.finish(codec, world_size, vector);
        self.answer_racks(block, topology);
        self.ask_for_overtaken(block);
    }

    /// The attempt to sum the block failed: all ranks send it again, with the scale that they have agreed on now.
    /// Returns the attempt and the scale.
    pub fn again(&mut self, block: u64, topology: &Topology) -> Option<(u8, BlockExponent)> {
        let served = self.blocks.get_mut(block)?;
        let agreed = served.exponent;
        self.orders += 1;
        (served.attempt, served.ordered) = (served.attempt.saturating_add(1), self.orders);
        served.restart();
        served.scale = agreed;
        let said = (served.attempt, agreed);
        self.answer_racks(block, topology);
        Some(said)
    }

    /// Queues one packet for each switch that has other ranks behind it than the server's own.
    fn answer_racks(&mut self, block: u64, topology: &Topology) {
        let own = self.own;
        let listens = |rack: &Rank| topology.neighbours(*rack).any(|rank| rank != own);
        self.outbox.extend(topology.racks().filter(listens).map(|rack| Outgoing::AnswerRack(block, rack)));
    }

    /// A block is complete, and earlier blocks are not: if that happens often, those have lost something (A7).
    fn ask_for_overtaken(&mut self, block: u64) {
        let step = self.step;
        while self.blocks.get(self.first_open).is_some_and(|served| served.state != State::Gathering) {
            self.first_open += step;
        }
        let Some(ordered) = self.blocks.get(block).map(|complete| complete.ordered) else { return };
        let mut earlier = self.first_open;
        while earlier < block {
            if let Some(served) = self.blocks.get_mut(earlier)
                && served.state == State::Gathering
                && served.was_sent_before(ordered)
            {
                served.later += 1;
                if served.later >= served.patience {
                    (served.later, served.patience) = (0, served.patience.saturating_mul(2));
                    self.ask(earlier);
                }
            }
            earlier += step;
        }
    }

    /// Asks every rank whose part is missing for its part.
    fn ask(&mut self, block: u64) {
        let Some(served) = self.blocks.get(block) else { return };
        let missing = self.others().filter(|&rank| !served.have.contains(rank));
        self.outbox.extend(missing.map(|rank| Outgoing::Need(block, rank)));
    }

    /// A rank waits for a block, and a switch may hold the rank's part of it.
    pub fn query(&mut self, block: u64, header: &Header) -> Result<(), DropReason> {
        let rank = header.wid;
        let served = self.blocks.open(block).ok_or(DropReason::Stale)?;
        let answer = match served.state {
            State::Done => Outgoing::Answer(block, rank),
            State::Refused(_) => Outgoing::Mismatch(block, rank),
            State::Gathering if header.attempt > served.attempt => return Err(DropReason::Ahead),
            State::Gathering if header.attempt < served.attempt => Outgoing::Answer(block, rank),
            State::Gathering => {
                served.has_sent.insert(rank);
                let is_safe = served.have.contains(rank) || header.flags.has(Flags::AT_SWITCH);
                if is_safe { Outgoing::Report(block, rank) } else { Outgoing::Need(block, rank) }
            }
        };
        self.outbox.push_back(answer);
        if let Outgoing::Report(..) = answer {
            self.prompt(block);
        }
        Ok(())
    }

    /// The first question about a block, and then one question in as many as there are ranks, makes the server prompt
    /// the ranks of which it knows nothing. Those ranks ask seldom themselves, if everything that they wait for was
    /// late before.
    fn prompt(&mut self, block: u64) {
        let world_size = u32::from(self.world_size);
        let Some(served) = self.blocks.get_mut(block) else { return };
        let is_due = served.questions % world_size == 0;
        served.questions = served.questions.wrapping_add(1);
        if is_due {
            let missing = self.missing(block);
            self.outbox.extend(missing.into_iter().map(|rank| Outgoing::Prompt(block, rank)));
        }
    }

    /// A part that was lost has come: the next rank whose part is missing is prompted. If several ranks sent at once,
    /// their packets would meet in the server's queue, and a short queue would let only one pass.
    fn prompt_next(&mut self, block: u64) {
        let Some(served) = self.blocks.get(block) else { return };
        let next = self.others().find(|&rank| !served.have.contains(rank));
        self.outbox.extend(next.map(|rank| Outgoing::Prompt(block, rank)));
    }

    /// The ranks of which nothing is known.
    pub fn missing(&self, block: u64) -> Vec<Rank> {
        let served = self.blocks.get(block);
        let known =
            |rank: &Rank| served.is_some_and(|served| served.have.contains(*rank) || served.has_sent.contains(*rank));
        self.others().filter(|rank| !known(rank)).collect()
    }

    /// Ranks disagree on a block: all are told.
    pub fn dispute(&mut self, block: u64, mismatch: Mismatch) {
        if let Some(served) = self.blocks.open(block) {
            served.state = State::Refused(mismatch);
        }
        self.outbox.extend(self.others().map(|rank| Outgoing::Mismatch(block, rank)));
        self.ready.push_back(block);
    }
}

/// What must be done about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing yet, or nothing more.
    Waits,
    /// All ranks have contributed.
    Complete,
    /// Ranks disagree.
    Refused(Mismatch),
}
