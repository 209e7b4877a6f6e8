//! How a contribution is added to an aggregator, and why it may not be.

use super::aggregators::Aggregators;
use super::job::State;
use super::{Arrival, BestEffortSwitch};
use crate::aggregation::best_effort::codec::Codec;
use crate::aggregation::best_effort::wire::{Flags, HEADER_LEN, Kind};
use crate::contract::drop_reason::DropReason;
use crate::contract::packet::PacketMut;

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
