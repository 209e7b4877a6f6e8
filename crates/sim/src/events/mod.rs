//! What happens next: the queue of events and the table of machine timers.
//!
//! The order is total and does not depend on who scheduled what first, nor on how many threads run: events of one
//! instant go by their [`EventId`], and an id has at most one event pending (a link has its head, a NIC its next free
//! moment). Timers come after all events of their instant, so that a packet that arrives just in time is in time.

mod timers;
mod wheel;

pub use timers::TimerTable;
pub use wheel::EventQueue;

use tributary_proto::contract::time::Time;

/// What an event is about: a link, a NIC, a packet on its own, by [`EventId::kind`] and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(u32);

/// The kinds of events, in the order in which events of one instant happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// Something that the file or a fault plan asked for at this instant.
    Plan = 0,
    /// The packet at the head of a link arrives at the link's far end.
    Arrival = 1,
    /// A packet that left its link's order (a fault delayed it) arrives.
    Stray = 2,
    /// A lossless port has finished a packet.
    Departure = 3,
    /// A host's NIC can take more packets.
    Nic = 4,
    /// A traffic source has something to start.
    Source = 5,
    /// An order to PAUSE or to go on reaches a lossless port.
    Pause = 6,
    /// A member of a job that has lost something for good shows whether it still gets on.
    Look = 7,
}

const KINDS: [EventKind; 8] = [
    EventKind::Plan,
    EventKind::Arrival,
    EventKind::Stray,
    EventKind::Departure,
    EventKind::Nic,
    EventKind::Source,
    EventKind::Pause,
    EventKind::Look,
];
const NUMBER_BITS: u32 = 29;

impl EventId {
    /// Numbers of one kind are below this.
    pub const LIMIT: u32 = 1 << NUMBER_BITS;

    /// The event of the `number`-th thing of a kind.
    pub fn new(kind: EventKind, number: u32) -> EventId {
        debug_assert!(number < EventId::LIMIT);
        EventId((kind as u32) << NUMBER_BITS | number)
    }

    /// What it is about.
    pub fn kind(self) -> EventKind {
        KINDS[(self.0 >> NUMBER_BITS) as usize]
    }

    /// Which of its kind.
    pub fn number(self) -> u32 {
        self.0 & (EventId::LIMIT - 1)
    }
}

/// One thing that will happen. Ordered by time, then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event {
    /// When.
    pub time: Time,
    /// What.
    pub id: EventId,
}
