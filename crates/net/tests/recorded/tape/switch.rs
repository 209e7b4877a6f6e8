//! A switch's machine that writes down what happens to it.

use tributary_proto::contract::config::SharedJob;
use tributary_proto::contract::drive::record::Made;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{JobId, PortId};
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::switch::{
    Emission, OperatorStatus, PortView, SharedReport, SharedSwitch, Switch, SwitchReport, Verdict,
};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::work::Instrumented;

use super::{Losses, Passage, Shareable, SwitchInput, SwitchTape, lock};

/// Passes everything on to the real machine, except for the packets that are lost.
pub struct TapedSwitch<M: ?Sized> {
    pub machine: Box<M>,
    pub tape: Shareable<SwitchTape>,
    pub losses: Losses,
}

impl<M: Switch + ?Sized> Switch for TapedSwitch<M> {
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, ports: &dyn PortView) -> Verdict {
        if self.losses.takes_next() {
            return Verdict::Drop(DropReason::Unexpected);
        }
        let (came, came_with) = (packet.bytes[..packet.len].to_vec(), packet.ecn);
        let verdict = self.machine.process(now, ingress, packet, ports);
        let (left, left_with) = (packet.bytes[..packet.len].to_vec(), packet.ecn);
        lock(&self.tape).pass(now, Passage { ingress, came, came_with, verdict, left, left_with });
        verdict
    }

    fn handle_timeout(&mut self, now: Time) {
        lock(&self.tape).begin(now, SwitchInput::Timeout);
        self.machine.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        let emission = self.machine.poll_transmit(now, buf);
        let due = self.machine.poll_timeout();
        let mut tape = lock(&self.tape);
        if tape.turns.last().is_none_or(|turn| turn.is_over) {
            tape.begin(now, SwitchInput::Nothing);
        }
        let turn = tape.turns.last_mut().expect("one is there");
        match emission {
            Some(Emission { len, wire_len, ecn, verdict: to, .. }) => {
                turn.made.push(Made { to, bytes: buf[..len].to_vec(), wire_len, ecn });
            }
            None => (turn.due, turn.is_over) = (due, true),
        }
        emission
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.machine.poll_timeout()
    }

    fn memory_bytes(&self) -> usize {
        self.machine.memory_bytes()
    }

    fn report(&self) -> SwitchReport {
        self.machine.report()
    }

    fn operator_status(&self) -> Option<OperatorStatus> {
        self.machine.operator_status()
    }

    fn instrumented(&mut self) -> Option<&mut dyn Instrumented> {
        self.machine.instrumented()
    }

    fn query_kinds(&self) -> u64 {
        self.machine.query_kinds()
    }

    fn is_sealed(&self) -> bool {
        self.machine.is_sealed()
    }
}

impl SharedSwitch for TapedSwitch<dyn SharedSwitch> {
    fn add_job(&mut self, plan: &SharedJob) {
        lock(&self.tape).plan(SwitchInput::Added(Box::new(plan.clone())));
        self.machine.add_job(plan);
    }

    fn remove_job(&mut self, job: JobId) {
        lock(&self.tape).plan(SwitchInput::Removed(job));
        self.machine.remove_job(job);
    }

    fn report_job(&self, job: JobId) -> SwitchReport {
        self.machine.report_job(job)
    }

    fn report_shared(&self) -> SharedReport {
        self.machine.report_shared()
    }
}
