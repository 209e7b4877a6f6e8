//! Writes the packets of a worker's slots, and names the memory that a worker touches next: for drivers that run more
//! workers than their processor's inner caches hold.

use tributary_numeric::prefetch;

use super::SlotHost;
use crate::aggregation::agreement::Stage;
use crate::aggregation::slots::Dialect;
use crate::aggregation::slots::wire::{Header, Kind, slot_of};
use crate::contract::host::Upcoming;
use crate::contract::packet::{Addr, Ecn, Transmit};
use crate::contract::seal;
use crate::contract::wire::COMMON_LEN;

impl<D: Dialect> SlotHost<D> {
    /// Writes the slot's packet. Returns its length in memory and on the wire.
    pub(super) fn write(&mut self, idx: u16, kind: Kind, buf: &mut [u8]) -> (usize, usize) {
        let (len, wire_len) = self.write_unsealed(idx, kind, buf);
        if self.is_sealed {
            seal::seal(&mut buf[..len], self.config.job.key);
        }
        (len, wire_len)
    }

    fn write_unsealed(&mut self, idx: u16, kind: Kind, buf: &mut [u8]) -> (usize, usize) {
        let slot = &self.slots[usize::from(idx)];
        let op = self.life.stream.op_of(slot.block).expect("a slot that sends has a block");
        let exponent = |ahead| {
            let pool = self.slots.len() as u64;
            let block = self.life.stream.next_in_slot(slot.block + ahead * pool, pool);
            Some(self.life.stream.op_of(block)?.exponent(block))
        };
        let word = self.dialect.says(&self.config, kind, exponent);
        let scaled_by = slot.agreement.scaled_by(slot.stage);
        buf[..COMMON_LEN].copy_from_slice(&self.common);
        kind.put(buf);
        let wid = self.config.leaf(self.recovery.tree_of_slot(idx)).child;
        Header { wid, idx, word, phase: slot.phase, spec: op.spec }.emit(buf);
        if kind == Kind::Query || slot.stage == Stage::Probe {
            return (Self::HEADER_LEN, Self::HEADER_LEN);
        }
        let range = op.range(slot.block);
        let brings = op.spec.primitive.contributes(self.config.rank);
        let elements = if brings || self.dialect.is_over_ranks() { range.len() } else { 0 };
        let len = Self::HEADER_LEN + op.encoding.buffer_len(elements);
        let wire_len = Self::HEADER_LEN + op.encoding.wire_len(elements);
        if elements > 0 && brings {
            let (block, world_size) = (slot.block, self.config.job.world_size);
            let op = self.life.stream.op_of_mut(block).expect("as before");
            op.send(block, scaled_by, world_size, &mut buf[Self::HEADER_LEN..len]);
        } else {
            // In such a broadcast each rank has to bring a part. A rank other than the root brings zeros, so the sum is
            // the root's words.
            buf[Self::HEADER_LEN..len].fill(0);
        }
        (len, wire_len)
    }

    pub(super) fn transmit(&mut self, idx: u16, (len, wire_len): (usize, usize)) -> Transmit {
        self.stats.packets_sent += 1;
        Transmit { to: Addr::Switch(self.recovery.tree_of_slot(idx)), len, wire_len, ecn: Ecn::NotCapable }
    }
}

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
