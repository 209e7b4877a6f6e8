//! How a contribution is added to an aggregator, and why it may not be.

use super::aggregators::Aggregators;
use super::job::State;
use super::{Arrival, BestEffortSwitch};
use crate::aggregation::best_effort::form::Form;
use crate::aggregation::best_effort::wire::{Flags, HEADER_LEN, Kind};
use crate::contract::drop_reason::DropReason;
use crate::contract::packet::PacketMut;

/// Why a contribution was not added.
#[derive(Clone, Hash)]
pub(super) enum Misfit {
    /// No aggregator is free, or none is large enough.
    Room,
    /// The packet is malformed.
    Form(DropReason),
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
        let form = Form::new(self.values, &header.spec, header.scale, state.places.world()).map_err(Misfit::Form)?;
        let (len, wire_len) = (packet.len - HEADER_LEN, packet.wire_len - HEADER_LEN);
        let elements = match kind {
            Kind::Sum => form.partial_elements(len, wire_len),
            _ => form.elements(len, wire_len),
        };
        let elements = elements.map_err(Misfit::Form)?;
        if form.lane_bytes(elements) > self.aggregators.lane_bytes() {
            return Err(Misfit::Room);
        }
        let probe = header.flags.has(Flags::PROBE);
        if self.jobs[job].position(at).state != State::Held {
            self.open(job, at, arrival, elements)?;
        }
        let state = &mut self.jobs[job];
        let entry = state.position(at).entry;
        let held = self.aggregators.get_mut(entry);
        let lacks = header.flags.has(Flags::OVERFLOW);
        if (held.spec, held.scale, held.probe) != (header.spec, header.scale, probe) {
            return Err(Misfit::Block);
        }
        if !lacks && !held.overflow && usize::from(held.elements) != elements {
            return Err(Misfit::Form(DropReason::BadLength));
        }
        held.overflow |= lacks;
        held.exponent = held.exponent.join(header.exponent);
        // A worker that has its own acknowledgement knows its own mark; in the sum the mark would slow the other
        // workers down.
        held.ecn |= arrival.marked && !(self.rules.acknowledges && kind == Kind::Gradient);
        held.last_from = arrival.ingress;
        let added = state.see(at, kind, header);
        held.count += added;
        state.counters.contributions += u64::from(added);
        if elements > 0 && !lacks {
            let vector = &packet.bytes[HEADER_LEN..packet.len];
            match kind {
                Kind::Sum => self.aggregators.add_partial(entry, &form, vector, elements),
                _ => self.aggregators.add(entry, &form, vector, elements),
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
        let entry = self.aggregators.take(fresh).ok_or(Misfit::Room)?;
        let position = state.position(at);
        (position.state, position.entry) = (State::Held, entry);
        state.held += 1;
        state.busy_at = arrival.now;
        Ok(())
    }
}
