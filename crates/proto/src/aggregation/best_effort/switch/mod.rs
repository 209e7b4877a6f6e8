//! The switch's side: it sums gradients that pass on the way to a server, as far as there is room, and acknowledges
//! them.
//!
//! Every packet of the family's jobs passes here, whatever its destination. The state of a block is looked up by its
//! job and position ([`job`]); its sum is in an aggregator ([`aggregators`]). Sums leave in packets of the switch's own
//! (`leaving.rs`), so that a gradient's own packet is free to go back as its acknowledgement.

mod adding;
mod aggregators;
pub mod job;
mod reports;

use self::adding::Misfit;
use self::aggregators::{Aggregators, Counters};
use self::job::{Job, Key, State};
use super::Rules;
use super::options::Memory;
use super::topology::Level;
use super::wire::{Flags, HEADER_LEN, Header, Kind, NOBODY, put_acknowledgement, put_passing};
use crate::contract::config::SharedSwitchConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{JobId, NodeId, PortId, Rank};
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::switch::{Emission, PortView, Switch, SwitchReport, Verdict};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::u16;
use crate::heap::heap_bytes;

/// The machine of one switch, for all jobs of a protocol.
#[derive(Clone, Hash)]
pub struct BestEffortSwitch {
    values: Values,
    rules: Rules,
    node: NodeId,
    memory: Memory,
    aggregators: Aggregators,
    /// The jobs, ascending by id.
    jobs: Vec<Job>,
    /// How many aggregators no packet has touched for a lease.
    expired: u64,
    /// The counts of jobs that are gone.
    departed: Counters,
}

/// A contribution and its fields.
struct Arrival<'a> {
    now: Time,
    ingress: PortId,
    header: &'a Header,
    server: Rank,
    level: Level,
    /// How many ranks the switch sums such blocks for.
    expected: u16,
    marked: bool,
}

impl BestEffortSwitch {
    /// A machine with all its memory.
    pub fn new(values: Values, rules: Rules, config: &SharedSwitchConfig) -> BestEffortSwitch {
        let memory = Memory::of(&config.options);
        BestEffortSwitch {
            values,
            rules,
            node: config.node,
            memory,
            aggregators: Aggregators::new(values, memory, config.elements_per_packet),
            jobs: Vec::new(),
            expired: 0,
            departed: Counters::default(),
        }
    }

    /// Bytes that a machine without jobs holds.
    pub fn bytes_of(values: Values, config: &SharedSwitchConfig) -> u64 {
        let memory = Memory::of(&config.options);
        size_of::<Self>() as u64 + Aggregators::bytes_of(values, memory, config.elements_per_packet)
    }

    fn receive(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>) -> Result<Verdict, DropReason> {
        let header = Header::parse(&packet.bytes[..packet.len])?;
        let kind = Kind::of(packet.bytes)?;
        let job = self.job_at(JobId(u16(packet.bytes, 6)))?;
        let state = &self.jobs[job];
        match kind {
            Kind::Gradient => {
                state.check_sender(ingress, header.wid)?;
                self.contribution(now, ingress, job, kind, &header, packet)
            }
            // Another switch's sum, which names one of that switch's ranks.
            Kind::Sum if state.is_local(ingress) => Err(DropReason::WrongWorker),
            Kind::Sum if header.wid.0 >= state.topology.world_size() => Err(DropReason::BadField),
            Kind::Sum => self.contribution(now, ingress, job, kind, &header, packet),
            Kind::Query => {
                state.check_sender(ingress, header.wid)?;
                Ok(self.query(job, &header, packet))
            }
            Kind::Aack => self.result(now, ingress, job, &header, packet),
            Kind::Leaving | Kind::Parted => {
                state.check_sender(ingress, Rank(header.count))?;
                self.towards(job, header.wid)
            }
            Kind::Gack | Kind::Report | Kind::Need | Kind::Mismatch => {
                self.check_server(job, ingress, &header)?;
                self.towards(job, header.wid)
            }
        }
    }

    fn towards(&self, job: usize, rank: Rank) -> Result<Verdict, DropReason> {
        if rank.0 >= self.jobs[job].topology.world_size() {
            return Err(DropReason::BadField);
        }
        Ok(self.jobs[job].way_to(rank))
    }

    /// The index of a job in the list. Packets of unknown jobs are dropped.
    #[inline]
    fn job_at(&self, job: JobId) -> Result<usize, DropReason> {
        self.jobs.binary_search_by_key(&job, |job| job.id).map_err(|_| DropReason::UnknownJob)
    }

    /// A server's packet must come from the block's server, or from another switch.
    fn check_server(&self, job: usize, ingress: PortId, header: &Header) -> Result<(), DropReason> {
        let state = &self.jobs[job];
        state.check_member(ingress, state.topology.server_of(header.seq)).map_err(|_| DropReason::NotAMember)
    }

    /// Handles a rank's block, or another switch's sum of several.
    fn contribution(
        &mut self,
        now: Time,
        ingress: PortId,
        job: usize,
        kind: Kind,
        header: &Header,
        packet: &mut PacketMut<'_>,
    ) -> Result<Verdict, DropReason> {
        let state = &mut self.jobs[job];
        let server = state.topology.server_of(header.seq);
        let (level, expected) = state.level(self.node, server);
        if kind == Kind::Gradient {
            if header.wid == server {
                return Err(DropReason::BadField);
            }
            state.advance(header.wid, header.seq)?;
        }
        let marked = packet.ecn == Ecn::CongestionExperienced || header.flags.has(Flags::ECN);
        let key = Key { seq: header.seq, attempt: header.attempt };
        let arrival = Arrival { now, ingress, header, server, level, expected, marked };
        let goes_on = header.flags.has(Flags::COLLISION) || header.flags.has(Flags::RESEND);
        let is_partial = kind == Kind::Sum && !header.flags.has(Flags::FULL);
        // The sum of a rack contains only the rack's own ranks, even if other ranks' packets pass its switch.
        let is_others = level == Level::Rack && !state.is_local(ingress);
        if level == Level::Forwards || is_others {
            return Ok(self.pass(job, header.flags, &arrival, packet));
        }
        let at = match self.find(job, key) {
            Ok(at) => at,
            // A worker asks again for a result that other ranks got long ago.
            Err(_) if goes_on || is_partial => return Ok(self.pass(job, header.flags, &arrival, packet)),
            Err(reason) => return Err(reason),
        };
        if goes_on || is_partial {
            return Ok(self.let_go(job, at, kind, &arrival, packet));
        }
        match self.jobs[job].position(at).state {
            State::Over => Err(DropReason::Stale),
            // The paper's switch forgets that some of the block went on. Its sum cannot be complete.
            State::Passed if self.memory.splits => {
                self.jobs[job].position(at).state = State::Free;
                self.jobs[job].clear(at);
                self.add(job, at, kind, &arrival, packet)
            }
            State::Releasing | State::Passed => Ok(self.overflow(job, at, &arrival, packet)),
            State::Unused | State::Free | State::Summing => self.add(job, at, kind, &arrival, packet),
        }
    }

    /// The position of a block, which replaces an earlier block there; an error if the position has a later one.
    fn find(&mut self, job: usize, key: Key) -> Result<usize, DropReason> {
        let state = &mut self.jobs[job];
        let at = state.position_of(key.seq);
        let position = *state.position(at);
        if position.state != State::Unused {
            if position.key == key {
                return Ok(at);
            }
            if !key.is_after(position.key) {
                return Err(DropReason::Stale);
            }
            // The rank that sends this block has the result of the earlier one: no rank needs that block any more.
            self.drop_entry(job, at);
        }
        let state = &mut self.jobs[job];
        let position = state.position(at);
        (position.key, position.state) = (key, State::Free);
        state.clear(at);
        Ok(at)
    }

    /// Frees the aggregator of a position, if it has one.
    fn drop_entry(&mut self, job: usize, at: usize) {
        let state = &mut self.jobs[job];
        let position = state.position(at);
        if matches!(position.state, State::Summing | State::Releasing) {
            let entry = position.entry;
            position.state = State::Passed;
            state.in_use -= 1;
            self.aggregators.free(entry);
        }
    }

    /// Forwards the packet to the server, with what this switch knows of the ranks' progress.
    fn pass(&self, job: usize, flags: Flags, arrival: &Arrival<'_>, packet: &mut PacketMut<'_>) -> Verdict {
        let state = &self.jobs[job];
        put_passing(packet.bytes, flags.with_if(arrival.marked, Flags::ECN), state.progress());
        state.way_to(arrival.server)
    }

    /// There is no room for the block: the server sums and acknowledges it.
    fn overflow(&mut self, job: usize, at: usize, arrival: &Arrival<'_>, packet: &mut PacketMut<'_>) -> Verdict {
        let state = &mut self.jobs[job];
        if state.position(at).state != State::Releasing {
            state.position(at).state = State::Passed;
        }
        let is_edge = arrival.level == Level::Edge;
        if is_edge {
            state.overflow(arrival.now, arrival.server);
        } else {
            state.counters.overflowed += 1;
        }
        let flags = arrival.header.flags.with(Flags::COLLISION).with_if(is_edge, Flags::EDGE);
        self.pass(job, flags, arrival, packet)
    }

    /// A part of the block goes to the server unsummed. No sum here can then be complete, so the aggregator's contents
    /// follow.
    fn let_go(
        &mut self,
        job: usize,
        at: usize,
        kind: Kind,
        arrival: &Arrival<'_>,
        packet: &mut PacketMut<'_>,
    ) -> Verdict {
        let is_again = kind == Kind::Gradient && arrival.header.flags.has(Flags::RESEND);
        let resender = if is_again { arrival.header.wid } else { NOBODY };
        match self.jobs[job].position(at).state {
            State::Summing => {
                // The paper's resend takes its own value along, and the aggregator's contents leave at once.
                let is_merged = is_again
                    && (self.jobs[job].has_seen(at, arrival.header.wid)
                        || self.try_add(job, at, kind, arrival, packet).is_ok());
                self.release(job, at, resender);
                if is_merged {
                    return Verdict::Consume;
                }
            }
            State::Unused | State::Free => self.jobs[job].position(at).state = State::Passed,
            State::Passed if is_again && arrival.level == Level::Edge => self.jobs[job].resent(arrival.server),
            State::Releasing | State::Passed | State::Over => {}
        }
        self.pass(job, arrival.header.flags, arrival, packet)
    }

    /// Sends the contents of an aggregator, and then frees it.
    fn release(&mut self, job: usize, at: usize, resender: Rank) {
        let state = &mut self.jobs[job];
        let position = state.position(at);
        position.state = State::Releasing;
        let entry = position.entry;
        let aggregator = self.aggregators.get_mut(entry);
        (aggregator.leaves, aggregator.resender) = (true, resender);
        if !aggregator.is_complete() {
            state.counters.released += 1;
        }
        self.aggregators.send(entry);
    }

    /// Adds a contribution to its block's aggregator, or takes an aggregator for it.
    fn add(
        &mut self,
        job: usize,
        at: usize,
        kind: Kind,
        arrival: &Arrival<'_>,
        packet: &mut PacketMut<'_>,
    ) -> Result<Verdict, DropReason> {
        if self.jobs[job].position(at).state == State::Summing {
            let state = &self.jobs[job];
            let (seen, unseen) = state.seen_of(at, kind, arrival.header);
            if unseen == 0 {
                // It was counted before. Its acknowledgement may be lost; what asks for a lost sum is a question.
                return match self.rules.acknowledges {
                    true => Ok(self.acknowledge(job, kind, arrival, packet)),
                    false => Err(DropReason::Duplicate),
                };
            }
            if seen > 0 {
                // Some of these ranks contributed singly before: the server will find out which ranks are missing.
                self.release(job, at, NOBODY);
                return Ok(self.overflow(job, at, arrival, packet));
            }
        }
        match self.try_add(job, at, kind, arrival, packet) {
            Ok(()) => {}
            Err(Misfit::Full) => return Ok(self.overflow(job, at, arrival, packet)),
            Err(Misfit::Codec(reason)) => return Err(reason),
            // It names another collective for the block than others: the server will see both, and tell all ranks.
            Err(Misfit::Block) => {
                self.release(job, at, NOBODY);
                return Ok(self.overflow(job, at, arrival, packet));
            }
        }
        let entry = self.jobs[job].position(at).entry;
        self.aggregators.renew(arrival.now, entry);
        if self.aggregators.get(entry).is_complete() {
            self.aggregators.send(entry);
        }
        Ok(self.acknowledge(job, kind, arrival, packet))
    }

    /// Sends the gradient's packet back as its acknowledgement, with only this gradient's mark.
    fn acknowledge(&self, job: usize, kind: Kind, arrival: &Arrival<'_>, packet: &mut PacketMut<'_>) -> Verdict {
        if !self.rules.acknowledges || kind == Kind::Sum {
            return Verdict::Consume;
        }
        let state = &self.jobs[job];
        packet.truncate(HEADER_LEN);
        packet.ecn = Ecn::NotCapable;
        put_acknowledgement(packet.bytes, Flags::default().with_if(arrival.marked, Flags::ECN), state.progress());
        state.way_to(arrival.header.wid)
    }
}

impl Switch for BestEffortSwitch {
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, _ports: &dyn PortView) -> Verdict {
        self.receive(now, ingress, packet).unwrap_or_else(Verdict::Drop)
    }

    /// Contents that no packet has touched for a lease are not lost: they go to the server, which asks for the rest.
    fn handle_timeout(&mut self, now: Time) {
        while let Some(entry) = self.aggregators.expired(now) {
            let aggregator = self.aggregators.get(entry);
            let (id, at) = (aggregator.job, usize::from(aggregator.position));
            self.expired += 1;
            match self.job_at(id) {
                Ok(job) => self.release(job, at, NOBODY),
                Err(_) => self.aggregators.free(entry),
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        self.next_sum(now, buf)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.aggregators.next_due()
    }

    fn memory_bytes(&self) -> usize {
        let jobs: usize = self.jobs.iter().map(Job::memory_bytes).sum();
        size_of::<Self>() + self.aggregators.memory_bytes() + heap_bytes(&self.jobs) + jobs
    }

    fn report(&self) -> SwitchReport {
        self.account(|_| true)
    }
}
