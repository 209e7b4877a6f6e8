//! Prefetches the memory of hosts that the next events will touch.
//!
//! The machines of a thousand hosts, with their slots, are more than the inner caches hold, and each event is another
//! host's. The next events are known, so that waiting for memory can overlap with the work on earlier events: first the
//! seat is fetched, then its machine, then what the machine holds on the heap, and at last, when the packet's own
//! memory is there, the packet's slot.

use tributary_numeric::prefetch;
use tributary_proto::contract::drive::host::Drain;
use tributary_proto::contract::host::Upcoming;

use super::seat::HostSeat;
use super::simulation::Simulation;
use crate::events::EventKind;
use crate::topology::LinkId;

/// How many events ahead each of these is fetched. Between two of them there is time enough for main memory, because
/// each is found through the one before.
const SEATS_AHEAD: usize = 7;
const MACHINES_AHEAD: usize = 6;
const HEAPS_AHEAD: usize = 4;
const SLOTS_AHEAD: usize = 1;

/// A host's event: what comes first to its first seat.
struct Coming<'a> {
    seat: &'a HostSeat,
    /// The link of the packet that arrives, if one does.
    arrives_by: Option<LinkId>,
}

impl Coming<'_> {
    /// True if the seat's machine is called. When a packet has left, it is only if it may have another to send.
    #[inline]
    fn calls_machine(&self) -> bool {
        self.arrives_by.is_some() || self.seat.drain == Drain::Sending
    }
}

impl Simulation {
    /// Fetches the memory that the next events will touch.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.fabric.prefetch();
        if !self.traffic.seats.is_empty() {
            self.prefetch_seats();
        }
    }

    #[inline]
    fn prefetch_seats(&self) {
        if let Some(Coming { seat, .. }) = self.seat_to_come(SEATS_AHEAD) {
            prefetch::whole(&self.hosts[seat.host.index()]);
            prefetch::whole(seat);
        }
        if let Some(coming) = self.seat_to_come(MACHINES_AHEAD) {
            if coming.calls_machine() {
                prefetch::whole(&*coming.seat.machine);
            }
            let host = &self.hosts[coming.seat.host.index()];
            prefetch::whole(&*host.seats);
            prefetch::first_line(self.fabric.link(host.uplink));
        }
        if let Some(coming) = self.seat_to_come(HEAPS_AHEAD)
            && coming.calls_machine()
        {
            coming.seat.machine.prefetch(Upcoming::Something);
        }
        if let Some(coming) = self.seat_to_come(SLOTS_AHEAD)
            && coming.calls_machine()
        {
            let upcoming = match coming.arrives_by {
                Some(link) => self.fabric.front_payload(link).map(Upcoming::Packet),
                None => Some(Upcoming::Transmit),
            };
            upcoming.into_iter().for_each(|upcoming| coming.seat.machine.prefetch(upcoming));
        }
    }

    /// The first seat of the host whose event comes after so many other events.
    #[inline]
    fn seat_to_come(&self, ahead: usize) -> Option<Coming<'_>> {
        let id = self.fabric.queue.upcoming(ahead)?;
        let link = LinkId(id.number());
        let (link, arrives_by) = match id.kind() {
            EventKind::Arrival => (link, Some(link)),
            EventKind::Departure => (link.reverse(), None),
            _ => return None,
        };
        let seat = self.traffic.seats.get(self.seat_behind[link.index()] as usize)?;
        Some(Coming { seat, arrives_by })
    }
}
