//! Prefetches the memory of hosts that the next events will touch.
//!
//! The machines of a thousand hosts, with their slots, are more than the inner caches hold, and each event is another
//! host's. The next events are known, so that waiting for memory can overlap with the work on earlier events: first the
//! seat is fetched, then its machine, then what the machine holds on the heap, and at last, when the packet's own
//! memory is there, the packet's slot.

use tributary_numeric::prefetch;
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
        if let Some((seat, _)) = self.seat_to_come(SEATS_AHEAD) {
            prefetch::whole(&self.hosts[seat.host.index()]);
            prefetch::whole(seat);
        }
        if let Some((seat, _)) = self.seat_to_come(MACHINES_AHEAD) {
            prefetch::whole(&*seat.machine);
            let host = &self.hosts[seat.host.index()];
            prefetch::whole(&*host.seats);
            prefetch::first_line(self.fabric.link(host.uplink));
        }
        if let Some((seat, _)) = self.seat_to_come(HEAPS_AHEAD) {
            seat.machine.prefetch(Upcoming::Something);
        }
        if let Some((seat, link)) = self.seat_to_come(SLOTS_AHEAD) {
            let upcoming = match link {
                Some(link) => self.fabric.front_payload(link).map(Upcoming::Packet),
                None => Some(Upcoming::Transmit),
            };
            upcoming.into_iter().for_each(|upcoming| seat.machine.prefetch(upcoming));
        }
    }

    /// The first seat of the host whose event comes after so many other events, and the link if a packet arrives.
    #[inline]
    fn seat_to_come(&self, ahead: usize) -> Option<(&HostSeat, Option<LinkId>)> {
        let id = self.fabric.queue.upcoming(ahead)?;
        let (link, arriving) = match id.kind() {
            EventKind::Arrival => (LinkId(id.number()), Some(LinkId(id.number()))),
            EventKind::Departure => (LinkId(id.number()).reverse(), None),
            _ => return None,
        };
        Some((self.traffic.seats.get(self.seat_behind[link.index()] as usize)?, arriving))
    }
}
