//! The sums that a switch sends to servers in packets of its own: complete sums, and sums that make way.

use super::super::codec::Codec;
use super::super::wire::{Flags, HEADER_LEN, Header, Kind, NOBODY, bitmap_len};
use super::aggregators::Aggregator;
use super::job::{Key, State};
use super::{BestEffortSwitch, Level};
use crate::contract::ids::Rank;
use crate::contract::packet::Ecn;
use crate::contract::switch::Emission;
use crate::contract::time::Time;
use crate::contract::wire::COMMON_LEN;

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
