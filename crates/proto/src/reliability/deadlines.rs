//! When collectives must be complete, and when to ask the switch which ranks are missing, so that its answer comes in
//! time.

use std::collections::VecDeque;

use crate::contract::ids::OpId;
use crate::contract::time::{Span, Time};

/// With so little time left, it is too late to ask again.
const LAST_QUESTION: Span = Span::from_millis(2);

#[derive(Clone, Hash)]
struct Entry {
    op: OpId,
    at: Time,
    ask_at: Time,
}

/// What is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// Ask which ranks are missing.
    Ask,
    /// A collective has failed.
    Failed,
}

/// The deadlines of collectives, which complete in the order of submission. A deadline that is not earlier than a later
/// collective's is not kept, so each deadline here is later than the one before it.
#[derive(Clone, Default, Hash)]
pub struct Deadlines(VecDeque<Entry>);

impl Deadlines {
    /// Adds a collective, which comes after all others.
    pub fn push(&mut self, now: Time, op: OpId, at: Time) {
        while self.0.back().is_some_and(|entry| entry.at >= at) {
            self.0.pop_back();
        }
        let ask_at = now + Span(at.since(now).0 / 4 * 3);
        self.0.push_back(Entry { op, at, ask_at });
    }

    /// This collective and those before it are complete.
    pub fn complete(&mut self, op: OpId) {
        while self.0.front().is_some_and(|entry| entry.op <= op) {
            self.0.pop_front();
        }
    }

    /// What is due now. The next question follows after half of the time that is left.
    pub fn poll(&mut self, now: Time) -> Option<Due> {
        let entry = self.0.front_mut()?;
        if entry.at <= now {
            return Some(Due::Failed);
        }
        if entry.ask_at > now {
            return None;
        }
        let left = entry.at.since(now);
        entry.ask_at = if left > LAST_QUESTION { now + Span(left.0 / 2) } else { entry.at };
        Some(Due::Ask)
    }

    /// When to poll next.
    pub fn next(&self) -> Option<Time> {
        self.0.front().map(|entry| entry.ask_at.min(entry.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn asks_at_three_quarters_and_then_in_ever_shorter_steps_until_the_end() {
        let mut deadlines = Deadlines::default();
        deadlines.push(ms(0), OpId(0), ms(80));
        let mut queries = Vec::new();
        let failed_at = loop {
            let now = deadlines.next().unwrap();
            match deadlines.poll(now) {
                Some(Due::Ask) => queries.push(now),
                Some(Due::Failed) => break now,
                None => panic!("next() named a time at which nothing is due"),
            }
        };
        assert_eq!(queries[..3], [ms(60), ms(70), ms(75)]);
        assert!(queries.len() < 8, "{queries:?}");
        assert_eq!(failed_at, ms(80));
    }

    #[test]
    fn the_earliest_deadline_comes_first_whatever_the_order_of_submission() {
        let mut deadlines = Deadlines::default();
        for (op, at) in [(0, 50), (1, 30), (2, 40)] {
            deadlines.push(ms(0), OpId(op), ms(at));
        }
        assert_eq!(deadlines.poll(ms(30)), Some(Due::Failed));
        deadlines.complete(OpId(0));
        assert_eq!(deadlines.poll(ms(30)), Some(Due::Failed));
        deadlines.complete(OpId(1));
        assert_eq!(deadlines.poll(ms(39)), Some(Due::Ask));
        assert_eq!(deadlines.poll(ms(40)), Some(Due::Failed));
        deadlines.complete(OpId(2));
        assert_eq!(deadlines.next(), None);
    }
}
