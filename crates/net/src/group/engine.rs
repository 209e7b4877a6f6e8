//! The state that a group's threads share under one lock: the machine, its link, and the collectives under way.
//!
//! The engine never sleeps. The leader (see `shared`) sleeps outside of the lock and then gives the engine a turn.

use std::sync::Arc;

use tributary_proto::contract::drive;
use tributary_proto::contract::drive::host::HostIo;
use tributary_proto::contract::host::{Collective, CollectiveError, Host, HostEvent, SubmitError};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::{Addr, Packet, Transmit};
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::{Span, Time};

use super::callers::Callers;
use super::link::Link;
use super::outlook::{News, Outlook};
use super::pending::Completion;
use crate::clock::Clock;

/// The most batches of one turn, so that other threads get the engine too.
const BATCHES_IN_A_TURN: usize = 8;

/// The machine with all that it needs.
pub struct Engine {
    rank: Rank,
    pub clock: Clock,
    pub link: Link,
    pub host: Box<dyn Host>,
    callers: Callers,
    outlook: Outlook,
}

impl Engine {
    /// An engine with nothing to do.
    pub fn new(rank: Rank, clock: Clock, link: Link, host: Box<dyn Host>) -> Engine {
        Engine { rank, clock, link, host, callers: Callers::default(), outlook: Outlook::default() }
    }

    /// Starts a collective and sends its first packets.
    pub fn submit(
        &mut self,
        tensor: Box<dyn Tensor>,
        timeout: Span,
        completion: Arc<Completion>,
    ) -> Result<(), SubmitError> {
        let (now, spec) = (self.clock.now(), tensor.spec());
        let op = self.host.submit(now, Collective { tensor, deadline: Some(now + timeout) })?;
        if self.callers.is_empty() {
            self.outlook.progressed(now);
        }
        self.callers.add(now, op, spec, completion);
        self.settle(now);
        Ok(())
    }

    /// Does what is due: takes packets that have arrived, runs timers, and sends the sign of life, which carries this
    /// rank's progress.
    pub fn turn(&mut self, packets: bool) {
        if packets {
            self.receive();
        }
        let now = self.clock.now();
        self.outlook.look(now, self.host.stats());
        if self.is_hopeless_at().is_some_and(|due| due <= now) {
            self.outlook.give_up();
            self.abort();
        }
        if drive::host::handle_timeout(&mut *self.host, now) {
            self.settle(now);
        }
        self.link.drain(now);
        if self.link.ping_due() <= now {
            self.link.keep_alive(now);
            self.link.tell(&self.callers.progress(now, self.rank));
        }
    }

    /// Gives up every collective. Their memory belongs to the callers after that.
    pub fn abort(&mut self) {
        let now = self.clock.now();
        self.host.abort(now);
        self.settle(now);
    }

    /// When the next turn is due, if no packet comes before.
    pub fn next_turn(&self) -> Time {
        [self.host.poll_timeout(), self.is_hopeless_at(), self.link.due()]
            .into_iter()
            .flatten()
            .fold(self.link.ping_due(), Time::min)
    }

    /// Takes news of the job from the switch. `None` withdraws the news.
    pub fn hear(&mut self, news: Option<News>) {
        self.outlook.hear(self.clock.now(), news);
    }

    /// The news that explain this error, if there are any.
    pub fn news_behind(&self, error: &CollectiveError) -> Option<&News> {
        self.outlook.behind(error)
    }

    fn is_hopeless_at(&self) -> Option<Time> {
        if self.callers.is_empty() { None } else { self.outlook.hopeless_at() }
    }

    /// Tells the machine that nothing more will be submitted, so that it informs its peers.
    pub fn finish(&mut self) {
        let now = self.clock.now();
        self.host.finish(now);
        self.settle(now);
    }

    /// True if no peer needs this worker any more.
    pub fn may_leave(&self) -> bool {
        self.host.may_leave()
    }

    /// True if collectives are under way, packets wait for the cable, or the machine has a timer on which peers depend.
    pub fn is_busy(&self) -> bool {
        !self.callers.is_empty() || self.host.poll_timeout().is_some() || self.link.due().is_some()
    }

    /// True if collectives were given up because of news.
    pub fn has_given_up(&self) -> bool {
        self.outlook.has_given_up()
    }

    /// Elements of completed collectives.
    pub fn elements_reduced(&self) -> u64 {
        self.callers.elements_reduced()
    }

    /// True if no collective is under way.
    pub fn is_settled(&self) -> bool {
        self.callers.is_empty()
    }

    /// Receives what the socket holds, and sends the machine's answers: full runs at once, the rest at the end.
    fn receive(&mut self) {
        for _ in 0..BATCHES_IN_A_TURN {
            let more = self.link.receive();
            let (host, mut turn) = self.at(self.clock.now());
            drive::host::receive(host, &mut turn);
            if !more {
                break;
            }
        }
        self.settle(self.clock.now());
    }

    /// Ends a turn after an input: see `drive::host::drain`.
    fn settle(&mut self, now: Time) {
        let (host, mut turn) = self.at(now);
        drive::host::drain(host, &mut turn);
    }

    fn at(&mut self, now: Time) -> (&mut dyn Host, Turn<'_>) {
        (&mut *self.host, Turn { now, link: &mut self.link, callers: &mut self.callers })
    }
}

/// The machine's surroundings at one time.
struct Turn<'a> {
    now: Time,
    link: &'a mut Link,
    callers: &'a mut Callers,
}

impl HostIo for Turn<'_> {
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn receive(&mut self) -> Option<(Addr, Packet<'_>)> {
        self.link.next(self.now)
    }

    #[inline]
    fn transmit_buf(&mut self, longest: usize) -> &mut [u8] {
        self.link.room(longest)
    }

    #[inline]
    fn send(&mut self, transmit: Transmit) {
        self.link.send(&transmit);
    }

    fn flush(&mut self) {
        self.link.flush(self.now);
    }

    fn on_event(&mut self, event: HostEvent) {
        self.callers.hear(event);
    }
}
