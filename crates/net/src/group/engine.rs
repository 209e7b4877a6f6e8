//! The state that a group's threads share under one lock: the machine, its link, and the collectives under way.
//!
//! The engine never sleeps. The leader (see `core`) sleeps outside of the lock and then gives the engine a turn.

use std::sync::{Arc, OnceLock};

use tributary_proto::contract::drive;
use tributary_proto::contract::drive::host::HostIo;
use tributary_proto::contract::host::{Collective, CollectiveError, Host, HostEvent, SubmitError};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::{Addr, Packet, Transmit};
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::contract::time::{Span, Time};

use super::completion::Completion;
use super::completion::InFlight;
use super::failure_detector::{FailureDetector, JobFailure};
use super::link::Link;
use crate::os::{Clock, Waker};

/// What the cores of a worker tell each other: why one of them has failed, after which none can go on.
pub struct SharedFailure {
    cause: OnceLock<CollectiveError>,
    /// They wake who drives the cores.
    wakers: Vec<Arc<Waker>>,
}

impl SharedFailure {
    /// None has failed.
    pub fn new(wakers: Vec<Arc<Waker>>) -> SharedFailure {
        SharedFailure { cause: OnceLock::new(), wakers }
    }

    fn set(&self, cause: &CollectiveError) {
        if self.cause.set(cause.clone()).is_ok() {
            self.wakers.iter().for_each(|waker| waker.wake());
        }
    }
}

/// The most batches of one turn, so that other threads get the engine too.
const BATCHES_IN_A_TURN: usize = 8;

/// The machine with all that it needs.
pub struct Engine {
    rank: Rank,
    pub clock: Clock,
    pub link: Link,
    pub host: Box<dyn Host>,
    in_flight: InFlight,
    failure_detector: FailureDetector,
    /// Shared with other cores, if there are some.
    failure: Option<Arc<SharedFailure>>,
}

impl Engine {
    /// An engine with nothing to do.
    pub fn new(rank: Rank, clock: Clock, link: Link, host: Box<dyn Host>) -> Engine {
        let (in_flight, failure_detector) = (InFlight::default(), FailureDetector::default());
        Engine { rank, clock, link, host, in_flight, failure_detector, failure: None }
    }

    /// The same as one of several cores of a worker.
    pub fn on_core(self, core: usize, failure: Option<Arc<SharedFailure>>) -> Engine {
        Engine { in_flight: self.in_flight.on_core(core), failure, ..self }
    }

    /// The number of the core.
    pub fn core(&self) -> usize {
        self.in_flight.core()
    }

    /// Why another core has failed, if one has.
    fn failed_elsewhere(&self) -> Option<CollectiveError> {
        self.failure.as_ref()?.cause.get().cloned()
    }

    /// Notes that this core has failed, if it has.
    fn share_failure(&self) {
        if let (Some(failure), Some(cause)) = (&self.failure, self.in_flight.failed()) {
            failure.set(cause);
        }
    }

    /// Starts the collectives of one operation and sends their first packets.
    pub fn submit(
        &mut self,
        tensors: Vec<Box<dyn Tensor>>,
        timeout: Span,
        completions: &[Arc<Completion>],
    ) -> Result<(), SubmitError> {
        if let Some(cause) = self.failed_elsewhere() {
            return Err(SubmitError::Broken(cause));
        }
        let now = self.clock.now();
        let specs: Vec<Spec> = tensors.iter().map(|tensor| tensor.spec()).collect();
        let collective = |tensor| Collective { tensor, deadline: Some(now + timeout) };
        let ops = self.host.submit_together(now, tensors.into_iter().map(collective).collect())?;
        if self.in_flight.is_empty() {
            self.failure_detector.on_progress(now);
        }
        for ((op, spec), completion) in ops.into_iter().zip(specs).zip(completions) {
            self.in_flight.add(now, op, spec, Arc::clone(completion));
        }
        self.drain(now);
        self.share_failure();
        Ok(())
    }

    /// Does what is due: takes packets that have arrived, runs timers, and sends the keepalive with this rank's progress.
    pub fn turn(&mut self, packets: bool) {
        if !self.in_flight.is_empty() && self.failed_elsewhere().is_some() {
            self.abort();
        }
        if packets {
            self.receive();
        }
        let now = self.clock.now();
        self.failure_detector.sample(now, self.host.stats());
        if self.give_up_at().is_some_and(|due| due <= now) {
            self.failure_detector.give_up();
            self.abort();
        }
        // This process may not have run for a while: answers that came in time are read before a timer sends again.
        if self.host.poll_timeout().is_some_and(|due| due <= now) {
            self.receive();
        }
        if drive::host::handle_timeout(&mut *self.host, now) {
            self.drain(now);
        }
        self.link.drain(now);
        if self.link.ping_due() <= now {
            self.link.keep_alive(now);
            if self.core() == 0 {
                self.link.send_progress(&self.in_flight.progress(now, self.rank));
            }
        }
        self.share_failure();
    }

    /// Gives up every collective. Their memory belongs to the callers after that.
    pub fn abort(&mut self) {
        let now = self.clock.now();
        self.host.abort(now);
        self.drain(now);
        self.share_failure();
    }

    /// When the next turn is due, if no packet comes before.
    pub fn next_turn(&self) -> Time {
        [self.host.poll_timeout(), self.give_up_at(), self.link.due()]
            .into_iter()
            .flatten()
            .fold(self.link.ping_due(), Time::min)
    }

    /// Sets the failure that the switch reports; `None` withdraws it.
    pub fn set_failure(&mut self, failure: Option<JobFailure>) {
        self.failure_detector.set_failure(self.clock.now(), failure);
    }

    /// The failure that explains this error, if one is known.
    pub fn failure_for(&self, error: &CollectiveError) -> Option<&JobFailure> {
        self.failure_detector.failure_for(error)
    }

    /// The collective in which others were waited for, if collectives have failed here for this reason.
    pub fn awaited(&self, error: &CollectiveError) -> Option<Spec> {
        self.in_flight.awaited(error)
    }

    fn give_up_at(&self) -> Option<Time> {
        let oldest = self.in_flight.completed_in_order();
        if self.in_flight.is_empty() { None } else { self.failure_detector.give_up_at(oldest) }
    }

    /// How many collectives have completed before the first that has not.
    pub fn completed_in_order(&self) -> u64 {
        self.in_flight.completed_in_order()
    }

    /// Notes that nothing more will be submitted, so that the machine informs its peers.
    pub fn finish(&mut self) {
        let now = self.clock.now();
        self.host.finish(now);
        self.drain(now);
    }

    /// True if no peer needs this worker any more.
    pub fn may_leave(&self) -> bool {
        self.host.may_leave()
    }

    /// True if collectives are under way, packets wait for the cable, or the machine has a timer on which peers depend.
    pub fn is_busy(&self) -> bool {
        !self.in_flight.is_empty() || self.host.poll_timeout().is_some() || self.link.due().is_some()
    }

    /// True if collectives were given up because of a failure.
    pub fn has_given_up(&self) -> bool {
        self.failure_detector.has_given_up()
    }

    /// Elements of completed collectives.
    pub fn elements_reduced(&self) -> u64 {
        self.in_flight.elements_reduced()
    }

    /// True if no collective is under way.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Receives what the socket holds, and sends the machine's answers: full runs at once, the rest at the end.
    fn receive(&mut self) {
        for _ in 0..BATCHES_IN_A_TURN {
            let more = self.link.receive();
            let (host, mut io) = self.io(self.clock.now());
            drive::host::receive(host, &mut io);
            if !more {
                break;
            }
        }
        self.drain(self.clock.now());
    }

    /// Drains the machine after an input: see `drive::host::drain`.
    fn drain(&mut self, now: Time) {
        let (host, mut io) = self.io(now);
        drive::host::drain(host, &mut io);
    }

    fn io(&mut self, now: Time) -> (&mut dyn Host, EngineIo<'_>) {
        (&mut *self.host, EngineIo { now, link: &mut self.link, in_flight: &mut self.in_flight })
    }
}

/// The machine's I/O at one time.
struct EngineIo<'a> {
    now: Time,
    link: &'a mut Link,
    in_flight: &'a mut InFlight,
}

impl HostIo for EngineIo<'_> {
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn receive(&mut self) -> Option<(Addr, Packet<'_>)> {
        self.link.next(self.now)
    }

    #[inline]
    fn transmit_buf(&mut self, longest: usize) -> &mut [u8] {
        self.link.buffer(longest)
    }

    #[inline]
    fn send(&mut self, transmit: Transmit) {
        self.link.send(&transmit);
    }

    fn flush(&mut self) {
        self.link.flush(self.now);
    }

    fn on_event(&mut self, event: HostEvent) {
        self.in_flight.on_event(event);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use tributary_proto::contract::drop_reason::DropReason;
    use tributary_proto::contract::host::HostStats;
    use tributary_proto::contract::ids::{ChildId, JobId, JobKey, OpId};
    use tributary_proto::contract::wire::{Common, kind};

    use super::*;
    use crate::os;
    use crate::rendezvous::JoinAnswer;
    use crate::udp::UdpPort;

    /// A machine that waits for one packet, and whose timer has run out. It counts packets and timeouts.
    #[derive(Default)]
    struct Waiting {
        stats: HostStats,
    }

    impl Host for Waiting {
        fn max_packet_len(&self) -> usize {
            64
        }

        fn stats(&self) -> &HostStats {
            &self.stats
        }

        fn handle_packet(&mut self, _: Time, _: Addr, _: Packet<'_>) -> Result<(), DropReason> {
            self.stats.packets_received += 1;
            Ok(())
        }

        fn handle_timeout(&mut self, _: Time) {
            self.stats.retransmissions += 1;
        }

        fn submit(&mut self, _: Time, _: Collective) -> Result<OpId, SubmitError> {
            unreachable!("the test submits nothing")
        }

        fn abort(&mut self, _: Time) {}

        fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
            None
        }

        fn poll_event(&mut self) -> Option<HostEvent> {
            None
        }

        fn poll_timeout(&self) -> Option<Time> {
            (self.stats.packets_received == 0).then_some(Time::ZERO)
        }
    }

    /// The leader slept until its timer, and the kernel let it run when the answer had come.
    #[test]
    fn an_answer_that_came_in_time_is_read_before_the_timer_that_runs_out() {
        let switch = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpPort::open((Ipv4Addr::LOCALHOST, 0).into(), 1 << 16, 1 << 16).unwrap();
        let (at, readable) = (udp.local_addr(), udp.as_fd().try_clone_to_owned().unwrap());
        let answer = JoinAnswer {
            job_id: JobId(1),
            key: JobKey(1),
            shards: vec![switch.local_addr().unwrap()],
            slots: 1,
            elements_per_packet: 8,
            most_cores: 1,
            peers: vec![at],
            servers: Vec::new(),
            serves: None,
            wid: ChildId(0),
            switches: Vec::new(),
            fabric: None,
        };
        let header = Common { protocol: 1, kind: 0, job: answer.job_id, key: answer.key };
        let link = Link::new(udp, header, &answer, 64, None);
        let mut engine = Engine::new(Rank(0), Clock::start(), link, Box::new(Waiting::default()));
        engine.turn(false);
        assert_eq!(engine.host.stats().retransmissions, 1, "nothing has come, and the timer has run out");

        let waker = Waker::new().unwrap();
        let is_there = |_: &u32| {
            let packet = [0, 0, 0, 0, kind::FIRST_OF_PROTOCOL, 0, 0, 0];
            switch.send_to(&packet, at).unwrap();
            os::wait(readable.as_fd(), &waker, Some(Duration::from_secs(1))).packets
        };
        (0..100).find(is_there).expect("a packet on the loopback interface");
        engine.turn(false);
        let HostStats { packets_received, retransmissions, .. } = engine.host.stats();
        assert_eq!((*packets_received >= 1, *retransmissions), (true, 1));
    }
}
