//! Packets that pass a switch unsummed. Questions and results inform the switch, and the switch adds its own fields to
//! them.

use super::BestEffortSwitch;
use super::job::{Key, State};
use crate::aggregation::best_effort::wire::{Flags, Header, put_passing};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::PortId;
use crate::contract::packet::PacketMut;
use crate::contract::switch::Verdict;
use crate::contract::time::Time;

impl BestEffortSwitch {
    /// A rank waits: this switch says whether it holds the block, and sends a complete sum again.
    pub(super) fn query(&mut self, job: usize, header: &Header, packet: &mut PacketMut<'_>) -> Verdict {
        let state = &mut self.jobs[job];
        let (at, server) = (state.position_of(header.seq), state.topology.server_of(header.seq));
        let position = *state.position(at);
        let is_here =
            position.key == Key { seq: header.seq, attempt: header.attempt } && position.state == State::Summing;
        let holds = is_here && state.has_seen(at, header.wid);
        put_passing(packet.bytes, header.flags.with_if(holds, Flags::AT_SWITCH), state.progress());
        let verdict = state.way_to(server);
        if is_here {
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
