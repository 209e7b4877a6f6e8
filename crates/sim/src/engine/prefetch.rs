//! Prefetches the memory of hosts that the next events will touch.
//!
//! The machines of a thousand hosts, with their slots, are more than the inner caches hold, and each event is another
//! host's. The next events are known, so that waiting for memory can overlap with the work on earlier events: first the
//! endpoint is fetched, then its machine, then what the machine holds on the heap, and at last, when the packet's own
//! memory is there, the packet's slot.

use tributary_numeric::prefetch;
use tributary_proto::contract::host::Upcoming;

use super::endpoint::Endpoint;
use super::simulation::Simulation;
use crate::events::EventKind;
use crate::topology::LinkId;

/// How many events ahead each of these is fetched. Between two of them there is time enough for main memory, because
/// each is found through the one before.
const ENDPOINTS_AHEAD: usize = 7;
const MACHINES_AHEAD: usize = 6;
const HEAPS_AHEAD: usize = 4;
const SLOTS_AHEAD: usize = 1;

impl Simulation {
    /// Fetches the memory that the next events will touch.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.fabric.prefetch();
        if !self.traffic.endpoints.is_empty() {
            self.prefetch_endpoints();
        }
    }

    #[inline]
    fn prefetch_endpoints(&self) {
        if let Some((endpoint, _)) = self.upcoming_endpoint(ENDPOINTS_AHEAD) {
            prefetch::whole(&self.hosts[endpoint.host.index()]);
            prefetch::whole(endpoint);
        }
        if let Some((endpoint, _)) = self.upcoming_endpoint(MACHINES_AHEAD) {
            prefetch::whole(&*endpoint.machine);
            let host = &self.hosts[endpoint.host.index()];
            prefetch::whole(&*host.endpoints);
            prefetch::first_line(self.fabric.link(host.uplink));
        }
        if let Some((endpoint, _)) = self.upcoming_endpoint(HEAPS_AHEAD) {
            endpoint.machine.prefetch(Upcoming::Something);
        }
        if let Some((endpoint, link)) = self.upcoming_endpoint(SLOTS_AHEAD) {
            let upcoming = match link {
                Some(link) => self.fabric.front_payload(link).map(Upcoming::Packet),
                None => Some(Upcoming::Transmit),
            };
            upcoming.into_iter().for_each(|upcoming| endpoint.machine.prefetch(upcoming));
        }
    }

    /// The first endpoint of the host whose event comes `ahead` events after the next one, and the link if a packet arrives.
    #[inline]
    fn upcoming_endpoint(&self, ahead: usize) -> Option<(&Endpoint, Option<LinkId>)> {
        let id = self.fabric.queue.upcoming(ahead)?;
        let (link, arriving) = match id.kind() {
            EventKind::Arrival => (LinkId(id.number()), Some(LinkId(id.number()))),
            EventKind::Departure => (LinkId(id.number()).reverse(), None),
            _ => return None,
        };
        Some((self.traffic.endpoints.get(self.first_endpoint[link.index()] as usize)?, arriving))
    }
}
