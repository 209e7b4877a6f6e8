//! Collectives from their submission to their end. They complete in the order of submission; where one fails, all later
//! ones fail with it.

use std::collections::VecDeque;
use std::ops::Range;

use super::report::Mismatch;
use super::stream::{Op, Stream};
use crate::contract::host::{Collective, CollectiveError, HostEvent, SubmitError};
use crate::contract::ids::OpId;
use crate::contract::time::Time;
use crate::reliability::deadlines::{Deadlines, Due};

/// The collectives of a host that have not ended, and the ends that the caller has not been told of.
#[derive(Clone, Hash)]
pub struct Life {
    /// The blocks of the collectives that have not ended.
    pub stream: Stream,
    deadlines: Deadlines,
    /// The collective that must fail as soon as all collectives before it are complete.
    failing: Option<Box<(OpId, CollectiveError)>>,
    broken: Option<Box<CollectiveError>>,
    events: VecDeque<HostEvent>,
}

/// A host whose collectives have a [`Life`]. How they complete and fail is the same for all such hosts.
pub trait LifeCycle {
    /// What waits: a slot, a position of a window, or a block.
    type Waiting;

    /// The host's collectives.
    fn life(&self) -> &Life;
    /// The same, mutable.
    fn life_mut(&mut self) -> &mut Life;
    /// A collective is complete, and goes back to its caller after this.
    fn on_complete(&mut self, _op: &Op) {}
    /// Everything has failed: forgets what is under way.
    fn stop(&mut self);
    /// What waits with the earliest block. It is searched for, because it is needed only when something is wrong.
    fn oldest_waiting(&self) -> Option<Self::Waiting>;
    /// Asks which ranks are missing where something waits.
    fn ask(&mut self, waiting: Option<Self::Waiting>);
    /// Why something waits.
    fn blame(&self, waiting: Self::Waiting) -> CollectiveError;

    /// All collectives that are queued fail, and all later ones.
    fn fail(&mut self, error: CollectiveError) {
        self.life_mut().fail(error);
        self.stop();
    }

    /// Reports collectives that are complete, in their order, and fails the rest if the next one must fail: then it
    /// returns false.
    fn complete_collectives(&mut self) -> bool {
        loop {
            match self.life_mut().take_complete() {
                Ok(Some(op)) => {
                    self.on_complete(&op);
                    self.life_mut().give_back(op);
                }
                Ok(None) => return true,
                Err(error) => {
                    self.fail(error);
                    return false;
                }
            }
        }
    }

    /// Fails everything at the first deadline that has passed, and asks questions before that.
    fn check_deadlines(&mut self, now: Time) {
        match self.life_mut().poll_deadline(now) {
            Some(Due::Failed) => {
                let error = match self.life().failing() {
                    Some(error) => error.clone(),
                    None => self.oldest_waiting().map_or(CollectiveError::Aborted, |waiting| self.blame(waiting)),
                };
                self.fail(error);
            }
            Some(Due::Ask) => {
                let waiting = self.oldest_waiting();
                self.ask(waiting);
            }
            None => {}
        }
    }
}

impl Life {
    /// No collective was submitted yet.
    pub fn new(stream: Stream) -> Life {
        Life { stream, deadlines: Deadlines::default(), failing: None, broken: None, events: VecDeque::new() }
    }

    /// An error if no collective may be submitted any more: an earlier one has failed, or must.
    pub fn may_submit(&self) -> Result<(), SubmitError> {
        match self.broken().or(self.failing()) {
            Some(error) => Err(SubmitError::Broken(error.clone())),
            None => Ok(()),
        }
    }

    /// Submits a collective; returns its number and its blocks.
    pub fn submit(&mut self, now: Time, collective: Collective) -> Result<(OpId, Range<u64>), SubmitError> {
        self.may_submit()?;
        let (id, blocks) = self.stream.push(collective.tensor);
        if let Some(at) = collective.deadline {
            self.deadlines.push(now, id, at);
        }
        Ok((id, blocks))
    }

    /// Submits collectives side by side, one for each tree, where each tree has this many slots.
    pub fn submit_striped(
        &mut self,
        now: Time,
        collectives: Vec<Collective>,
        slots: u64,
    ) -> Result<(Vec<OpId>, Range<u64>), SubmitError> {
        self.may_submit()?;
        let deadlines: Vec<Option<Time>> = collectives.iter().map(|one| one.deadline).collect();
        let (ids, blocks) = self.stream.push_striped(collectives.into_iter().map(|one| one.tensor), slots);
        for (&id, at) in ids.iter().zip(deadlines) {
            at.iter().for_each(|&at| self.deadlines.push(now, id, at));
        }
        Ok((ids, blocks))
    }

    /// Ranks disagree on a collective: it must fail as soon as all collectives before it are complete.
    pub fn dispute(&mut self, op: OpId, Mismatch { a, a_spec, b, b_spec }: Mismatch) {
        if self.failing.as_ref().is_none_or(|earlier| op < earlier.0) {
            self.failing = Some(Box::new((op, CollectiveError::Mismatch { a, a_spec, b, b_spec, op })));
        }
    }

    /// The error of the next collective that must fail.
    fn failing(&self) -> Option<&CollectiveError> {
        self.failing.as_ref().map(|failing| &failing.1)
    }

    /// The error with which everything has failed.
    pub fn broken(&self) -> Option<&CollectiveError> {
        self.broken.as_deref()
    }

    /// Takes the oldest collective if all its results have come. An error says that it must fail instead, and all others
    /// with it: see [`Life::fail`].
    fn take_complete(&mut self) -> Result<Option<Op>, CollectiveError> {
        let Some(front) = self.stream.front() else { return Ok(None) };
        if let Some((_, error)) = self.failing.as_deref().filter(|(op, _)| *op == front.id) {
            return Err(error.clone());
        }
        if front.remaining > 0 {
            return Ok(None);
        }
        Ok(self.stream.pop())
    }

    /// Gives a complete collective back to its caller.
    fn give_back(&mut self, Op { id, tensor, .. }: Op) {
        self.deadlines.complete(id);
        self.events.push_back(HostEvent::Done { op: id, tensor });
    }

    /// All collectives that have not ended fail, and all later ones.
    fn fail(&mut self, error: CollectiveError) {
        while let Some(Op { id, tensor, .. }) = self.stream.pop() {
            self.deadlines.complete(id);
            self.events.push_back(HostEvent::Failed { op: id, tensor, error: error.clone() });
        }
        self.broken.get_or_insert_with(|| Box::new(error));
    }

    /// The deadline or question that is due, if any.
    fn poll_deadline(&mut self, now: Time) -> Option<Due> {
        self.deadlines.poll(now)
    }

    /// When the next deadline or question is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// The next end of a collective, for the caller.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }
}
