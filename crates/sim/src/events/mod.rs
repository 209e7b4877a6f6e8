//! Future events: the queue of events and the table of machine timers.
//!
//! The order is total and depends neither on who scheduled an event first nor on the number of threads: events of one
//! instant are ordered by their [`EventId`], and an id has at most one event pending (a link has its first packet, a
//! NIC its next free moment). Timers come after all events of their instant, so that a packet that arrives just in time
//! is in time.

mod timers;
mod wheel;

pub use timers::TimerTable;
pub use wheel::EventQueue;

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
}

const KINDS: [EventKind; 8] = [
    EventKind::Action,
    EventKind::Arrival,
    EventKind::LateArrival,
    EventKind::Departure,
    EventKind::Nic,
    EventKind::Submit,
    EventKind::PauseOrder,
    EventKind::ProgressCheck,
];
const NUMBER_BITS: u32 = 29;

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
