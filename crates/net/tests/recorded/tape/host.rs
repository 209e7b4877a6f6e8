//! A host's machine that writes down what happens to it.

use tributary_proto::contract::drive::record::Made;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, Host, HostEvent, HostStats, SubmitError, Upcoming};
use tributary_proto::contract::ids::OpId;
use tributary_proto::contract::metric::Metric;
use tributary_proto::contract::packet::{Addr, Packet, Transmit};
use tributary_proto::contract::time::Time;

use super::{HostInput, HostTape, Losses, Shareable, lock, outcome_of};

/// Passes everything on to the real machine, except for the packets that are lost.
pub struct TapedHost {
    pub machine: Box<dyn Host>,
    pub tape: Shareable<HostTape>,
    pub losses: Losses,
}

impl Host for TapedHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        let (spec, deadline) = (collective.tensor.spec(), collective.deadline);
        let elements = spec.elements as usize;
        let mut input = vec![0; collective.tensor.native_len(elements)];
        collective.tensor.read_input(0..elements, &mut input);
        lock(&self.tape).note(now, HostInput::Submission { input, dtype: spec.dtype, op: spec.op, deadline });
        self.machine.submit(now, collective)
    }

    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        if self.losses.takes_next() {
            return Err(DropReason::Unexpected);
        }
        let Packet { bytes, ecn, .. } = packet;
        lock(&self.tape).note(now, HostInput::Packet { from, bytes: bytes.to_vec(), ecn });
        self.machine.handle_packet(now, from, packet)
    }

    fn handle_timeout(&mut self, now: Time) {
        lock(&self.tape).note(now, HostInput::Timeout);
        self.machine.handle_timeout(now);
    }

    fn abort(&mut self, now: Time) {
        lock(&self.tape).note(now, HostInput::Abortion);
        self.machine.abort(now);
    }

    fn finish(&mut self, now: Time) {
        lock(&self.tape).note(now, HostInput::End);
        self.machine.finish(now);
    }

    fn may_leave(&self) -> bool {
        self.machine.may_leave()
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let transmit = self.machine.poll_transmit(now, buf);
        let mut tape = lock(&self.tape);
        let turn = tape.turn();
        turn.drained_at = now;
        if let Some(Transmit { to, len, wire_len, ecn }) = transmit {
            turn.sent.push(Made { to, bytes: buf[..len].to_vec(), wire_len, ecn });
        }
        transmit
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        let event = self.machine.poll_event();
        let due = self.machine.poll_timeout();
        let mut tape = lock(&self.tape);
        let turn = tape.turn();
        match &event {
            Some(event) => turn.outcomes.push(outcome_of(event)),
            None => (turn.due, turn.is_over) = (due, true),
        }
        event
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.machine.poll_timeout()
    }

    fn max_packet_len(&self) -> usize {
        self.machine.max_packet_len()
    }

    fn stats(&self) -> &HostStats {
        self.machine.stats()
    }

    fn prefetch(&self, upcoming: Upcoming<'_>) {
        self.machine.prefetch(upcoming);
    }

    fn metrics(&self) -> Vec<Metric> {
        self.machine.metrics()
    }
}
