//! The drain of a host, with a machine that says what it is asked.

use tributary_numeric::ReduceOp;

use tributary_proto::contract::drive::host::{Drain, HostIo, drain, handle_timeout, receive};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use tributary_proto::contract::ids::{OpId, Rank};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, Transmit};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

const LATER: Time = Time(Span::from_millis(1).0);

/// Answers each packet with two, then with an event; a packet without bytes is of no use.
#[derive(Default)]
struct Echo {
    answers: u8,
    is_done: bool,
    stats: HostStats,
}

impl Host for Echo {
    fn submit(&mut self, _: Time, _: Collective) -> Result<OpId, SubmitError> {
        Err(SubmitError::Broken(CollectiveError::Aborted))
    }
    fn handle_packet(&mut self, _: Time, _: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        self.answers += 2 * packet.bytes.first().ok_or(DropReason::Truncated)?;
        Ok(())
    }
    fn handle_timeout(&mut self, _: Time) {
        self.answers += 1;
    }
    fn abort(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, buf: &mut [u8]) -> Option<Transmit> {
        self.answers = self.answers.checked_sub(1)?;
        buf[0] = self.answers;
        Some(Transmit { to: Addr::Worker(Rank(0)), len: 1, wire_len: 1, ecn: Ecn::NotCapable })
    }
    fn poll_event(&mut self) -> Option<HostEvent> {
        let tensor = Box::new(ElementTensor::new(InPlaceStorage::new(Vec::<i32>::new()), ReduceOp::Sum));
        std::mem::take(&mut self.is_done).then_some(HostEvent::Done { op: OpId(0), tensor })
    }
    fn poll_timeout(&self) -> Option<Time> {
        Some(LATER)
    }
    fn max_packet_len(&self) -> usize {
        1
    }
    fn stats(&self) -> &HostStats {
        &self.stats
    }
}

/// Packets in and out, in their order.
struct Wire {
    waiting: Vec<&'static [u8]>,
    log: Vec<String>,
    buf: [u8; 1],
}

impl HostIo for Wire {
    fn now(&self) -> Time {
        Time::ZERO
    }
    fn receive(&mut self) -> Option<(Addr, Packet<'_>)> {
        let bytes = self.waiting.pop()?;
        self.log.push("in".into());
        Some((Addr::Worker(Rank(0)), Packet { bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable }))
    }
    fn transmit_buf(&mut self, longest: usize) -> &mut [u8] {
        &mut self.buf[..longest]
    }
    fn send(&mut self, transmit: Transmit) {
        self.log.push(format!("out {:?}", &self.buf[..transmit.len]));
    }
    fn flush(&mut self) {
        self.log.push("flushed".into());
    }
    fn on_event(&mut self, _: HostEvent) {
        self.log.push("heard".into());
    }
}

#[test]
fn what_a_machine_answers_to_a_packet_leaves_before_the_next_comes_in() {
    let mut wire = Wire { waiting: vec![&[1], &[], &[1]], log: Vec::new(), buf: [0] };
    let mut echo = Echo::default();
    receive(&mut echo, &mut wire);
    assert_eq!(wire.log, ["in", "out [1]", "out [0]", "in", "in", "out [1]", "out [0]"]);
}

#[test]
fn packets_leave_before_the_caller_learns_of_the_end() {
    let mut wire = Wire { waiting: Vec::new(), log: Vec::new(), buf: [0] };
    let mut echo = Echo { answers: 1, is_done: true, ..Echo::default() };
    assert_eq!(drain(&mut echo, &mut wire), Some(LATER));
    assert_eq!(wire.log, ["out [0]", "flushed", "heard"]);
}

#[test]
fn a_timer_runs_when_it_is_due_and_its_packets_leave_with_the_drain() {
    let mut wire = Wire { waiting: Vec::new(), log: Vec::new(), buf: [0] };
    let mut echo = Echo::default();
    assert!(!handle_timeout(&mut echo, Time::ZERO));
    assert!(handle_timeout(&mut echo, LATER));
    drain(&mut echo, &mut wire);
    assert_eq!(wire.log, ["out [0]", "flushed"]);
}

#[test]
fn a_drain_by_single_packets_ends_once_after_the_last() {
    let (mut echo, mut drain, mut buf) = (Echo { answers: 2, ..Echo::default() }, Drain::default(), [0]);
    assert!(drain.transmit(&mut echo, Time::ZERO, &mut buf).is_none(), "there was no input");
    drain.begin();
    for _ in 0..2 {
        assert!(drain.transmit(&mut echo, Time::ZERO, &mut buf).is_some());
        assert!(!drain.end(), "there may be more");
    }
    assert!(drain.transmit(&mut echo, Time::ZERO, &mut buf).is_none());
    assert!(drain.end() && !drain.end());
}

#[test]
fn a_timer_that_was_early_is_set_again_without_a_packet() {
    let mut drain = Drain::default();
    drain.reset_timer();
    assert!(drain.end());
    drain.begin();
    drain.reset_timer();
    assert_eq!(drain, Drain::Sending, "packets come first");
}
