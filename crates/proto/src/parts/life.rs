//! Collectives from their submission to their end: they complete in the order of submission, and where one fails all later
//! ones fail with it.

use std::collections::VecDeque;
use std::ops::Range;

use super::deadlines::{Deadlines, Due};
use super::mismatch::Mismatch;
use super::stream::{Op, Stream};
use crate::contract::host::{Collective, CollectiveError, HostEvent, SubmitError};
use crate::contract::ids::OpId;
use crate::contract::time::Time;

/// The collectives of a host that have not ended, and what is to be told of those that have.
#[derive(Clone, Hash)]
pub struct Life {
    /// The blocks of those that have not ended.
    pub stream: Stream,
    deadlines: Deadlines,
    /// The collective that must fail as soon as those before it are complete.
    failing: Option<(OpId, CollectiveError)>,
    broken: Option<CollectiveError>,
    events: VecDeque<HostEvent>,
}

/// A collective that is complete.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Completed {
    /// Its blocks of the stream.
    pub blocks: Range<u64>,
}

impl Life {
    /// None were submitted.
    pub fn new(stream: Stream) -> Life {
        Life { stream, deadlines: Deadlines::default(), failing: None, broken: None, events: VecDeque::new() }
    }

    /// Whether one more may be submitted: none where an earlier one has failed, or must.
    pub fn may_submit(&self) -> Result<(), SubmitError> {
        match self.broken.as_ref().or(self.failing.as_ref().map(|(_, error)| error)) {
            Some(error) => Err(SubmitError::Broken(error.clone())),
            None => Ok(()),
        }
    }

    /// One more; gives its number and its blocks.
    pub fn submit(&mut self, now: Time, collective: Collective) -> Result<(OpId, Range<u64>), SubmitError> {
        self.may_submit()?;
        let (id, blocks) = self.stream.push(collective.tensor);
        if let Some(at) = collective.deadline {
            self.deadlines.push(now, id, at);
        }
        Ok((id, blocks))
    }

    /// Ranks disagree on a collective: it must fail as soon as those before it are complete.
    pub fn dispute(&mut self, op: OpId, Mismatch { a, a_spec, b, b_spec }: Mismatch) {
        if self.failing.as_ref().is_none_or(|(earlier, _)| op < *earlier) {
            self.failing = Some((op, CollectiveError::Mismatch { a, a_spec, b, b_spec, op }));
        }
    }

    /// What the next collective that must fail fails with.
    pub fn failing(&self) -> Option<&CollectiveError> {
        self.failing.as_ref().map(|(_, error)| error)
    }

    /// What everything has failed with.
    pub fn broken(&self) -> Option<&CollectiveError> {
        self.broken.as_ref()
    }

    /// Ends the oldest collective if all its results have come. The error is what it must fail with instead, and all
    /// others with it: see [`Life::fail`].
    pub fn complete_next(&mut self) -> Result<Option<Completed>, CollectiveError> {
        let Some(front) = self.stream.front() else { return Ok(None) };
        if let Some((_, error)) = self.failing.as_ref().filter(|(op, _)| *op == front.id) {
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

    /// Everything that has not ended fails, and so does everything later.
    pub fn fail(&mut self, error: CollectiveError) {
        while let Some(Op { id, tensor, .. }) = self.stream.pop() {
            self.deadlines.complete(id);
            self.events.push_back(HostEvent::Failed { op: id, tensor, error: error.clone() });
        }
        self.broken.get_or_insert(error);
    }

    /// What has come due.
    pub fn poll_deadline(&mut self, now: Time) -> Option<Due> {
        self.deadlines.poll(now)
    }

    /// When something comes due next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// The next end to tell the caller of.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }
}
