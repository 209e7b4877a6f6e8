//! The drain of a host: packets out, then events, then the timer.
//!
//! A driver that sends at once calls [`receive`] and [`settle`]. A driver whose NIC asks for one packet at a time keeps a
//! [`Drain`] for each machine instead, which remembers how far the drain has come.

use crate::contract::host::{Host, HostEvent};
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::time::Time;

/// A host's surroundings: its clock, the packets that arrive, the way out, and its caller.
pub trait HostIo {
    /// The time of the inputs under way.
    fn now(&self) -> Time;
    /// The next packet of the burst that has arrived, and who sent it; `None` after the last one.
    fn receive(&mut self) -> Option<(Addr, Packet<'_>)>;
    /// Memory for the machine's next packet: at least `longest` bytes.
    fn room(&mut self, longest: usize) -> &mut [u8];
    /// Sends the packet that the machine has written to the last [`HostIo::room`].
    fn send(&mut self, transmit: Transmit);
    /// The machine wants nothing more sent: what was gathered leaves.
    fn flush(&mut self) {}
    /// Takes what the machine says to its caller.
    fn hear(&mut self, event: HostEvent);
}

/// Takes a burst of packets and sends what the machine answers to each. [`settle`] follows, after one burst or several.
#[inline]
pub fn receive<H: Host + ?Sized, Io: HostIo>(host: &mut H, io: &mut Io) {
    let now = io.now();
    while let Some((from, packet)) = io.receive() {
        // The machine has counted a packet of no use, and answers nothing.
        if host.handle_packet(now, from, packet).is_ok() {
            transmit(host, io);
        }
    }
}

/// Runs the machine's timer if it is due; true if [`settle`] has to follow.
#[inline]
pub fn handle_timeout<H: Host + ?Sized>(host: &mut H, now: Time) -> bool {
    let is_due = host.poll_timeout().is_some_and(|due| due <= now);
    if is_due {
        host.handle_timeout(now);
    }
    is_due
}

/// The drain after an input: sends all that the machine wants sent, passes on all that it says, and gives the time for
/// which its timer has to be set.
#[inline]
pub fn settle<H: Host + ?Sized, Io: HostIo>(host: &mut H, io: &mut Io) -> Option<Time> {
    transmit(host, io);
    io.flush();
    tell(host, |event| io.hear(event));
    host.poll_timeout()
}

/// Sends all that the machine wants sent.
#[inline]
pub fn transmit<H: Host + ?Sized, Io: HostIo>(host: &mut H, io: &mut Io) {
    let (now, longest) = (io.now(), host.max_packet_len());
    while let Some(transmit) = host.poll_transmit(now, io.room(longest)) {
        io.send(transmit);
    }
}

/// Passes on all that the machine says.
#[inline]
pub fn tell<H: Host + ?Sized>(host: &mut H, mut hear: impl FnMut(HostEvent)) {
    while let Some(event) = host.poll_event() {
        hear(event);
    }
}

/// How far the drain after a machine's last input has come, where a NIC asks for one packet at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// All is done until the next input.
    #[default]
    Done,
    /// The machine may have packets to send.
    Sending,
    /// All packets are sent; the timer is not set yet.
    Sent,
}

impl Drain {
    /// There was an input: the drain begins anew.
    #[inline]
    pub fn begin(&mut self) {
        *self = Drain::Sending;
    }

    /// The driver's timer for the machine was due, and is set no more. The machine's own may be later.
    #[inline]
    pub fn reset_timer(&mut self) {
        if *self == Drain::Done {
            *self = Drain::Sent;
        }
    }

    /// The machine's next packet; asks for none when all are sent.
    #[inline]
    pub fn transmit<H: Host + ?Sized>(&mut self, host: &mut H, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        if *self != Drain::Sending {
            return None;
        }
        let transmit = host.poll_transmit(now, buf);
        if transmit.is_none() {
            *self = Drain::Sent;
        }
        transmit
    }

    /// True once all packets are sent: the driver takes the events and sets the timer then, which ends the drain.
    #[inline]
    pub fn end(&mut self) -> bool {
        let ends = *self == Drain::Sent;
        if ends {
            *self = Drain::Done;
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::ReduceOp;

    use super::*;
    use crate::collective::tensors::{ElementTensor, InPlaceStorage};
    use crate::contract::drop_reason::DropReason;
    use crate::contract::host::{Collective, CollectiveError, HostStats, SubmitError};
    use crate::contract::ids::{OpId, Rank};
    use crate::contract::packet::Ecn;
    use crate::contract::time::Span;

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
        room: [u8; 1],
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
        fn room(&mut self, longest: usize) -> &mut [u8] {
            &mut self.room[..longest]
        }
        fn send(&mut self, transmit: Transmit) {
            self.log.push(format!("out {:?}", &self.room[..transmit.len]));
        }
        fn flush(&mut self) {
            self.log.push("flushed".into());
        }
        fn hear(&mut self, _: HostEvent) {
            self.log.push("heard".into());
        }
    }

    #[test]
    fn what_a_machine_answers_to_a_packet_leaves_before_the_next_comes_in() {
        let mut wire = Wire { waiting: vec![&[1], &[], &[1]], log: Vec::new(), room: [0] };
        let mut echo = Echo::default();
        receive(&mut echo, &mut wire);
        assert_eq!(wire.log, ["in", "out [1]", "out [0]", "in", "in", "out [1]", "out [0]"]);
    }

    #[test]
    fn packets_leave_before_the_caller_hears_of_the_end() {
        let mut wire = Wire { waiting: Vec::new(), log: Vec::new(), room: [0] };
        let mut echo = Echo { answers: 1, is_done: true, ..Echo::default() };
        assert_eq!(settle(&mut echo, &mut wire), Some(LATER));
        assert_eq!(wire.log, ["out [0]", "flushed", "heard"]);
    }

    #[test]
    fn a_timer_runs_when_it_is_due_and_its_packets_leave_with_the_drain() {
        let mut wire = Wire { waiting: Vec::new(), log: Vec::new(), room: [0] };
        let mut echo = Echo::default();
        assert!(!handle_timeout(&mut echo, Time::ZERO));
        assert!(handle_timeout(&mut echo, LATER));
        settle(&mut echo, &mut wire);
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
}
