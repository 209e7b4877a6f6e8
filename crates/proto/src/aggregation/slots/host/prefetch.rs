//! Tells which memory a worker touches next. It is for drivers that run more workers than their processor's inner
//! caches hold.

use tributary_numeric::prefetch;

use super::SlotHost;
use crate::aggregation::slots::Dialect;
use crate::aggregation::slots::wire::slot_of;
use crate::contract::host::Upcoming;

impl<D: Dialect> SlotHost<D> {
    /// The implementation of `Host::prefetch`.
    pub(super) fn ask_for_memory(&self, upcoming: Upcoming<'_>) {
        let idx = match upcoming {
            Upcoming::Something => {
                self.recovery.prefetch();
                self.queue.prefetch();
                return self.life.stream.prefetch();
            }
            Upcoming::Packet(packet) => slot_of(packet),
            Upcoming::Transmit => self.queue.front(),
        };
        self.life.stream.prefetch_tensor();
        if let Some(idx) = idx
            && let Some(slot) = self.slots.get(usize::from(idx))
        {
            prefetch::whole(slot);
            self.recovery.prefetch_slot(idx);
            self.queue.prefetch_slot(idx);
        }
    }
}
