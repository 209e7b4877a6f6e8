//! What a switch does with a block: it adds contributions to an aggregator, sends sums in packets of their own, and
//! lets other packets pass unsummed. Questions and results inform the switch, which adds its own fields to them.

use super::super::codec::Codec;
use super::super::wire::{Flags, HEADER_LEN, Header, Kind, NOBODY, bitmap_len};
use super::aggregators::{Aggregator, Aggregators};
use super::job::{Key, State};
use super::{Arrival, BestEffortSwitch, Level};
use crate::aggregation::best_effort::wire::put_passing;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{PortId, Rank};
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::switch::{Emission, Verdict};
use crate::contract::time::Time;
use crate::contract::wire::COMMON_LEN;

/// Why a contribution was not added.
#[derive(Clone, Hash)]
pub(super) enum Misfit {
    /// No aggregator is free, or none is large enough.
    Full,
    /// The packet is malformed.
    Codec(DropReason),
    /// It names another collective for the block than the contributions before it.
    Block,
}

impl BestEffortSwitch {
    pub(super) fn try_add(
        &mut self,
        job: usize,
        at: usize,
        kind: Kind,
        arrival: &Arrival<'_>,
        packet: &PacketMut<'_>,
    ) -> Result<(), Misfit> {
        let Arrival { header, .. } = *arrival;
        let state = &self.jobs[job];
        let codec =
            Codec::new(self.values, &header.spec, header.scale, state.topology.world_size()).map_err(Misfit::Codec)?;
        let (len, wire_len) = (packet.len - HEADER_LEN, packet.wire_len - HEADER_LEN);
        let elements = match kind {
            Kind::Sum => codec.partial_elements(len, wire_len),
            _ => codec.elements(len, wire_len),
        };
        let elements = elements.map_err(Misfit::Codec)?;
        if codec.lane_bytes(elements) > self.aggregators.lane_bytes() {
            return Err(Misfit::Full);
        }
        let probe = header.flags.has(Flags::PROBE);
        if self.jobs[job].position(at).state != State::Summing {
            self.open(job, at, arrival, elements)?;
        }
        let state = &mut self.jobs[job];
        let entry = state.position(at).entry;
        let aggregator = self.aggregators.get_mut(entry);
        let lacks = header.flags.has(Flags::OVERFLOW);
        if (aggregator.spec, aggregator.scale, aggregator.probe) != (header.spec, header.scale, probe) {
            return Err(Misfit::Block);
        }
        if !lacks && !aggregator.overflow && usize::from(aggregator.elements) != elements {
            return Err(Misfit::Codec(DropReason::BadLength));
        }
        aggregator.overflow |= lacks;
        aggregator.exponent = aggregator.exponent.join(header.exponent);
        // A worker that has its own acknowledgement knows its own mark; in the sum the mark would slow the other
        // workers down.
        aggregator.ecn |= arrival.marked && !(self.rules.acknowledges && kind == Kind::Gradient);
        aggregator.last_from = arrival.ingress;
        let added = state.see(at, kind, header);
        aggregator.count += added;
        state.counters.contributions += u64::from(added);
        if elements > 0 && !lacks {
            let vector = &packet.bytes[HEADER_LEN..packet.len];
            match kind {
                Kind::Sum => self.aggregators.add_partial(entry, &codec, vector, elements),
                _ => self.aggregators.add(entry, &codec, vector, elements),
            }
        }
        Ok(())
    }
    /// Takes an aggregator for a block of which this switch has nothing.
    fn open(&mut self, job: usize, at: usize, arrival: &Arrival<'_>, elements: usize) -> Result<(), Misfit> {
        let (state, header) = (&mut self.jobs[job], arrival.header);
        let probe = header.flags.has(Flags::PROBE);
        let fresh = Aggregators::fresh(
            state.id,
            at as u16,
            elements,
            arrival.expected,
            header.scale,
            header.spec,
            header.index,
            probe,
        );
        let entry = self.aggregators.take(fresh).ok_or(Misfit::Full)?;
        let position = state.position(at);
        (position.state, position.entry) = (State::Summing, entry);
        state.in_use += 1;
        state.busy_at = arrival.now;
        Ok(())
    }
}

impl BestEffortSwitch {
    /// The next sum that leaves.
    pub(super) fn next_sum(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        let entry = self.aggregators.first_leaving()?;
        let aggregator = self.aggregators.get(entry).clone();
        let at = usize::from(aggregator.position);
        let Ok(job) = self.job_at(aggregator.job) else {
            // The job is gone. `remove_job` should have freed its aggregators.
            debug_assert!(false, "an aggregator outlives its job");
            self.aggregators.free(entry);
            return None;
        };
        let state = &mut self.jobs[job];
        let key = state.position(at).key;
        let (server, world_size) = (state.topology.server_of(key.seq), state.topology.world_size());
        let is_full = aggregator.is_complete();
        let header = self.header_of(job, at, key, server, &aggregator);
        let brings = header.has_vector();
        let elements = if brings { usize::from(aggregator.elements) } else { 0 };
        let state = &mut self.jobs[job];
        buf[..COMMON_LEN].copy_from_slice(&state.common);
        header.emit(Kind::Sum, buf);
        let codec = Codec::new(self.values, &header.spec, header.scale, world_size).ok()?;
        let bitmap = if is_full { 0 } else { bitmap_len(world_size) };
        let end = HEADER_LEN + codec.partial_buffer_len(elements);
        let wire_len = HEADER_LEN + codec.partial_wire_len(elements) + bitmap;
        if elements > 0 {
            self.aggregators.load(entry, &codec, elements, &mut buf[HEADER_LEN..end]);
        }
        state.put_seen(at, &mut buf[end..end + bitmap]);
        let verdict = state.way_to(server);
        if aggregator.leaves {
            state.position(at).state = State::Passed;
            state.in_use -= 1;
            self.aggregators.free(entry);
        } else {
            self.aggregators.renew(now, entry);
        }
        let (len, ingress) = (end + bitmap, Some(aggregator.last_from));
        Some(Emission { len, wire_len, ecn: Ecn::Capable, verdict, ingress })
    }
    /// The header of a sum.
    fn header_of(&self, job: usize, at: usize, key: Key, server: Rank, aggregator: &Aggregator) -> Header {
        let state = &self.jobs[job];
        let is_resent = aggregator.resender != NOBODY;
        let mut others =
            (0..state.topology.world_size()).map(Rank).filter(|&rank| rank != server && state.has_seen(at, rank));
        let speaker = if is_resent { aggregator.resender } else { others.next().unwrap_or(server) };
        Header {
            seq: key.seq,
            prog: state.progress(),
            index: aggregator.index,
            received: 0,
            flags: Flags::default()
                .with_if(aggregator.is_complete(), Flags::FULL)
                .with_if(is_resent, Flags::RESEND)
                .with_if(aggregator.ecn, Flags::ECN)
                .with_if(aggregator.overflow, Flags::OVERFLOW)
                .with_if(aggregator.probe, Flags::PROBE)
                .with_if(aggregator.asker != NOBODY, Flags::AT_SWITCH)
                .with_if(state.level(self.node, server).0 == Level::Edge, Flags::EDGE),
            wid: speaker,
            count: aggregator.count,
            attempt: key.attempt,
            exponent: aggregator.exponent,
            scale: aggregator.scale,
            spec: aggregator.spec,
        }
    }
}

impl BestEffortSwitch {
    /// A rank waits: this switch says whether it holds the block, and sends a complete sum again. Where blocks may be
    /// split, it passes on an incomplete sum.
    pub(super) fn query(&mut self, job: usize, header: &Header, packet: &mut PacketMut<'_>) -> Verdict {
        let state = &mut self.jobs[job];
        let (at, server) = (state.position_of(header.seq), state.topology.server_of(header.seq));
        let position = *state.position(at);
        let is_here =
            position.key == Key { seq: header.seq, attempt: header.attempt } && position.state == State::Summing;
        let holds = is_here && state.has_seen(at, header.wid);
        put_passing(packet.bytes, header.flags.with_if(holds, Flags::AT_SWITCH), state.progress());
        let verdict = state.way_to(server);
        if is_here && self.memory.splits && !self.aggregators.get(position.entry).is_complete() {
            // The rest may have gone on before, and will not come: the question acts as the paper's resend.
            self.release(job, at, NOBODY);
        } else if is_here {
            self.aggregators.on_query(position.entry, header.wid);
        }
        verdict
    }

    /// A result passes on its way from the server: it frees the block's aggregator, and learns how short memory is
    /// here.
    pub(super) fn result(
        &mut self,
        now: Time,
        ingress: PortId,
        job: usize,
        header: &Header,
        packet: &mut PacketMut<'_>,
    ) -> Result<Verdict, DropReason> {
        self.check_server(job, ingress, header)?;
        if header.wid.0 >= self.jobs[job].topology.world_size() {
            return Err(DropReason::BadField);
        }
        let attempt = match header.flags.has(Flags::AGAIN) {
            true => header.attempt.checked_sub(1).ok_or(DropReason::BadField)?,
            false => header.attempt,
        };
        let key = Key { seq: header.seq, attempt };
        let at = self.jobs[job].position_of(header.seq);
        let position = *self.jobs[job].position(at);
        let is_later = position.state != State::Unused && position.key.is_after(key);
        if !is_later {
            self.drop_entry(job, at);
            let state = &mut self.jobs[job];
            (state.position(at).key, state.position(at).state) = (key, State::Over);
            state.counters.results += u64::from(!header.flags.has(Flags::AGAIN));
        }
        let lease = self.memory.lease;
        let state = &mut self.jobs[job];
        let server = state.topology.server_of(header.seq);
        state.complete(header.seq);
        if state.topology.switch_of(server) == self.node {
            state.received(server, header.received);
        }
        if state.in_use == 0 && now.since(state.busy_at) >= lease {
            state.forget_lost();
        }
        let outstanding: u64 = self.jobs.iter().map(|job| job.outstanding).sum();
        let is_short = u64::from(self.aggregators.in_use) + outstanding > self.memory.threshold(self.jobs.len());
        let state = &mut self.jobs[job];
        state.counters.marked += u64::from(is_short && !is_later);
        put_passing(packet.bytes, header.flags.with_if(is_short, Flags::AECN), header.prog);
        if !header.flags.has(Flags::MULTICAST) {
            return Ok(state.way_to(header.wid));
        }
        let target = state.topology.switch_of(header.wid);
        Ok(match target == self.node {
            true => Verdict::Multicast(state.all_but(server)),
            false => Verdict::Route(target),
        })
    }
}
