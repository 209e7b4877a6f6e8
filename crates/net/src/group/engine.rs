//! What a group's threads share under one lock: the machine, its link, and the collectives under way.
//!
//! The engine never sleeps. Whoever leads (see `shared`) sleeps outside of the lock and then gives it a turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_control::Timers;
use tributary_proto::collective::tensor::Tensor;
use tributary_proto::contract::host::{Collective, CollectiveError, Host, HostEvent, SubmitError};
use tributary_proto::contract::ids::OpId;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::COMMON_LEN;

use super::link::Link;
use super::outlook::{News, Outlook};
use super::pending::Completion;
use crate::clock::Clock;

/// The machine with all that it needs.
pub struct Engine {
    pub clock: Clock,
    pub link: Link,
    pub host: Box<dyn Host>,
    pending: BTreeMap<OpId, Arc<Completion>>,
    /// Elements of completed collectives.
    pub elements_reduced: u64,
    outlook: Outlook,
}

impl Engine {
    /// An engine with nothing to do.
    pub fn new(clock: Clock, link: Link, host: Box<dyn Host>) -> Engine {
        Engine { clock, link, host, pending: BTreeMap::new(), elements_reduced: 0, outlook: Outlook::default() }
    }

    /// Starts a collective and sends its first packets.
    pub fn submit(
        &mut self,
        tensor: Box<dyn Tensor>,
        timeout: Span,
        completion: Arc<Completion>,
    ) -> Result<(), SubmitError> {
        let now = self.clock.now();
        let op = self.host.submit(now, Collective { tensor, deadline: Some(now + timeout) })?;
        if self.pending.is_empty() {
            self.outlook.progressed(now);
        }
        self.pending.insert(op, completion);
        self.settle(now);
        Ok(())
    }

    /// Does what is due: packets that have arrived, timers, the sign of life.
    pub fn turn(&mut self, packets: bool) {
        if packets {
            let clock = self.clock;
            self.link.receive(&mut *self.host, || clock.now());
            self.report_events();
        }
        let now = self.clock.now();
        self.outlook.look(now, self.host.stats());
        if self.is_hopeless_at().is_some_and(|due| due <= now) {
            self.outlook.give_up();
            self.abort();
        }
        if self.host.poll_timeout().is_some_and(|due| due <= now) {
            self.host.handle_timeout(now);
            self.settle(now);
        }
        if self.ping_due() <= now {
            self.link.ping(now, COMMON_LEN);
        }
    }

    /// Gives up every collective; their memory is the callers' after that.
    pub fn abort(&mut self) {
        let now = self.clock.now();
        self.host.abort(now);
        self.settle(now);
    }

    /// When the next turn is due, if no packet comes before.
    pub fn next_turn(&self) -> Time {
        [self.host.poll_timeout(), self.is_hopeless_at()].into_iter().flatten().fold(self.ping_due(), Time::min)
    }

    /// The switch has news of the job; `None` takes them back.
    pub fn hear(&mut self, news: Option<News>) {
        self.outlook.hear(self.clock.now(), news);
    }

    /// The news that explain such an error, if there are any.
    pub fn news_behind(&self, error: &CollectiveError) -> Option<&News> {
        self.outlook.behind(error)
    }

    fn is_hopeless_at(&self) -> Option<Time> {
        if self.pending.is_empty() { None } else { self.outlook.hopeless_at() }
    }

    /// Nothing more will be submitted: the machine tells its peers what they need to know of that.
    pub fn finish(&mut self) {
        let now = self.clock.now();
        self.host.finish(now);
        self.settle(now);
    }

    /// No peer needs this worker any more.
    pub fn may_leave(&self) -> bool {
        self.host.may_leave()
    }

    /// Collectives are under way, or the machine has a timer that peers depend on.
    pub fn is_busy(&self) -> bool {
        !self.pending.is_empty() || self.host.poll_timeout().is_some()
    }

    /// No collective is under way.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    fn ping_due(&self) -> Time {
        self.link.switch_last_told() + Timers::KEEPALIVE
    }

    fn settle(&mut self, now: Time) {
        self.link.transmit(&mut *self.host, now);
        self.report_events();
    }

    fn report_events(&mut self) {
        while let Some(event) = self.host.poll_event() {
            // The tensor is dropped before the caller hears of the end: nothing refers to its memory any more.
            let (op, outcome) = match event {
                HostEvent::Done { op, tensor } => {
                    self.elements_reduced += u64::from(tensor.spec().elements);
                    drop(tensor);
                    (op, Ok(()))
                }
                HostEvent::Failed { op, tensor, error } => {
                    drop(tensor);
                    (op, Err(error))
                }
            };
            if let Some(completion) = self.pending.remove(&op) {
                completion.complete(outcome);
            }
        }
    }
}
