//! Future events: the queue of events and the table of machine timers.
//!
//! The order is total and depends neither on who scheduled an event first nor on the number of threads: events of one
//! instant are ordered by their [`EventId`], and an id has at most one event pending (a link has its first packet, a
//! NIC its next free moment). Timers come after all events of their instant, so that a packet that arrives just in time
//! is in time.

mod wheel;

pub use wheel::EventQueue;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tributary_proto::contract::time::Time;

/// The subject of an event: a link, a NIC or a single packet, by [`EventId::kind`] and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(u32);

/// The kinds of events, in the order in which events of one instant happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// An action that the file or a fault plan has for this instant.
    Action = 0,
    /// The packet at the head of a link arrives at the link's far end.
    Arrival = 1,
    /// A packet that a fault delayed out of its link's order arrives.
    LateArrival = 2,
    /// A lossless port has finished a packet.
    Departure = 3,
    /// A host's NIC can take more packets.
    Nic = 4,
    /// A rank submits its next collective.
    Submit = 5,
    /// An order to PAUSE or to resume reaches a lossless port.
    PauseOrder = 6,
    /// A member of a job that has lost something for good is checked for progress.
    ProgressCheck = 7,
    /// A rank goes on in its training step.
    StepWake = 8,
}

const KINDS: [EventKind; 9] = [
    EventKind::Action,
    EventKind::Arrival,
    EventKind::LateArrival,
    EventKind::Departure,
    EventKind::Nic,
    EventKind::Submit,
    EventKind::PauseOrder,
    EventKind::ProgressCheck,
    EventKind::StepWake,
];
const NUMBER_BITS: u32 = 28;

impl EventId {
    /// Numbers of one kind are below this.
    pub const LIMIT: u32 = 1 << NUMBER_BITS;

    /// The id of the event of a kind and number.
    pub fn new(kind: EventKind, number: u32) -> EventId {
        debug_assert!(number < EventId::LIMIT);
        EventId((kind as u32) << NUMBER_BITS | number)
    }

    /// The kind.
    pub fn kind(self) -> EventKind {
        KINDS[(self.0 >> NUMBER_BITS) as usize]
    }

    /// The number within the kind.
    pub fn number(self) -> u32 {
        self.0 & (EventId::LIMIT - 1)
    }
}

/// A future event. Events are ordered by time, then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event {
    /// When.
    pub time: Time,
    /// What.
    pub id: EventId,
}

const NEVER: Time = Time(u64::MAX);

/// The timers of machines: when to poll each again.
///
/// A machine's deadline nearly always moves later (each answer restarts a retransmission timer). So the table keeps the
/// earliest deadline that was set since the machine was last polled, and polls it again when that deadline comes: moving
/// a deadline costs one comparison.
#[derive(Default)]
pub struct TimerTable {
    /// For each machine, the time of its one valid entry in `heap`.
    armed: Vec<Time>,
    heap: BinaryHeap<Reverse<(Time, u32)>>,
}

impl TimerTable {
    /// A table for `machines` machines without deadlines.
    pub fn new(machines: usize) -> TimerTable {
        TimerTable { armed: vec![NEVER; machines], heap: BinaryHeap::new() }
    }

    /// Grows the table to this many machines.
    pub fn grow(&mut self, machines: usize) {
        self.armed.resize(self.armed.len().max(machines), NEVER);
    }

    /// Sets a machine's deadline, if it has one. The machine may be woken earlier, never later.
    pub fn set(&mut self, machine: u32, deadline: Option<Time>) {
        let Some(deadline) = deadline else { return };
        let armed = &mut self.armed[machine as usize];
        if deadline < *armed {
            *armed = deadline;
            self.heap.push(Reverse((deadline, machine)));
        }
    }

    /// When a machine is polled next. A deadline that is not earlier changes nothing.
    #[inline]
    pub fn armed(&self, machine: u32) -> Time {
        self.armed[machine as usize]
    }

    /// No poll is due before this time. Known without a search for the first entry that is valid.
    #[inline]
    pub fn not_before(&self) -> Time {
        self.heap.peek().map_or(NEVER, |&Reverse((time, _))| time)
    }

    /// The time of the next poll, if there is one.
    #[inline]
    pub fn earliest(&mut self) -> Option<Time> {
        while let Some(&Reverse((time, machine))) = self.heap.peek() {
            if self.armed[machine as usize] == time {
                return Some(time);
            }
            self.heap.pop();
        }
        None
    }

    /// The machine to poll, if the next poll is due by `now`. Its deadline must be `set` afterwards.
    pub fn pop_due(&mut self, now: Time) -> Option<u32> {
        if self.earliest()? > now {
            return None;
        }
        let Reverse((_, machine)) = self.heap.pop()?;
        self.armed[machine as usize] = NEVER;
        Some(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_at_the_earliest_deadline_that_was_set() {
        let mut timers = TimerTable::new(2);
        timers.set(0, Some(Time(50)));
        timers.set(1, Some(Time(40)));
        timers.set(0, Some(Time(30)));
        timers.set(0, Some(Time(90)));
        assert_eq!(timers.earliest(), Some(Time(30)));
        assert_eq!(timers.pop_due(Time(29)), None);
        assert_eq!(timers.pop_due(Time(30)), Some(0));
        timers.set(0, Some(Time(90)));
        assert_eq!(timers.pop_due(Time(60)), Some(1));
        assert_eq!(timers.earliest(), Some(Time(90)));
    }

    #[test]
    fn deadlines_of_one_instant_go_by_machine() {
        let mut timers = TimerTable::new(3);
        for machine in [2, 0, 1] {
            timers.set(machine, Some(Time(7)));
        }
        let order: Vec<_> = std::iter::from_fn(|| timers.pop_due(Time(7))).collect();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn a_machine_without_a_deadline_is_never_polled() {
        let mut timers = TimerTable::new(1);
        timers.set(0, None);
        assert_eq!(timers.earliest(), None);
    }
}
