//! Collectives from their submission to their end. They complete in the order of submission; where one fails, all later
//! ones fail with it.

use std::collections::VecDeque;
use std::ops::Range;

use super::mismatch::Mismatch;
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

/// A collective that is complete.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Completed {
    /// The collective's blocks in the stream.
    pub blocks: Range<u64>,
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

    /// Ranks disagree on a collective: it must fail as soon as all collectives before it are complete.
    pub fn dispute(&mut self, op: OpId, Mismatch { a, a_spec, b, b_spec }: Mismatch) {
        if self.failing.as_ref().is_none_or(|earlier| op < earlier.0) {
            self.failing = Some(Box::new((op, CollectiveError::Mismatch { a, a_spec, b, b_spec, op })));
        }
    }

    /// The error of the next collective that must fail.
    pub fn failing(&self) -> Option<&CollectiveError> {
        self.failing.as_ref().map(|failing| &failing.1)
    }

    /// The error with which everything has failed.
    pub fn broken(&self) -> Option<&CollectiveError> {
        self.broken.as_deref()
    }

    /// Ends the oldest collective if all its results have come. An error says that it must fail instead, and all others
    /// with it: see [`Life::fail`].
    pub fn complete_next(&mut self) -> Result<Option<Completed>, CollectiveError> {
        let Some(front) = self.stream.front() else { return Ok(None) };
        if let Some((_, error)) = self.failing.as_deref().filter(|(op, _)| *op == front.id) {
            return Err(error.clone());
        }
        if front.remaining > 0 {
            return Ok(None);
        }
        let Op { id, tensor, first_block, blocks, .. } = self.stream.pop().expect("there is a front");
        self.deadlines.complete(id);
        self.events.push_back(HostEvent::Done { op: id, tensor });
        Ok(Some(Completed { blocks: first_block..first_block + blocks }))
    }

    /// All collectives that have not ended fail, and all later ones.
    pub fn fail(&mut self, error: CollectiveError) {
        while let Some(Op { id, tensor, .. }) = self.stream.pop() {
            self.deadlines.complete(id);
            self.events.push_back(HostEvent::Failed { op: id, tensor, error: error.clone() });
        }
        self.broken.get_or_insert_with(|| Box::new(error));
    }

    /// The deadline or question that is due, if any.
    pub fn poll_deadline(&mut self, now: Time) -> Option<Due> {
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
