//! A queue of packets in one piece of memory that doubles when it is full and never shrinks.

use tributary_numeric::prefetch;

use super::Packet;

/// First in, first out.
#[derive(Default)]
pub(super) struct Ring {
    /// Empty, or a power of two.
    slots: Box<[Packet]>,
    head: u32,
    len: u32,
}

impl Ring {
    const FIRST_SIZE: usize = 4;

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a slot for one more packet, behind all others.
    #[inline]
    pub(super) fn push(&mut self) -> &mut Packet {
        if self.len as usize == self.slots.len() {
            self.grow();
        }
        let slot = self.slot(self.len);
        self.len += 1;
        &mut self.slots[slot]
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Packet> {
        if self.len == 0 {
            return None;
        }
        let packet = self.slots[self.slot(0)];
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        Some(packet)
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Packet> {
        if self.len == 0 { None } else { Some(&self.slots[self.slot(0)]) }
    }

    /// The packet with `index` packets before it.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut Packet {
        debug_assert!(index < self.len());
        let slot = self.slot(index as u32);
        &mut self.slots[slot]
    }

    /// Fetches the memory of the packet with `behind` packets behind it.
    #[inline]
    pub(super) fn prefetch_from_back(&self, behind: usize) {
        let index = self.len.wrapping_sub(1 + behind as u32);
        if let Some(packet) = self.slots.get(self.slot(index)) {
            prefetch::first_line(packet);
        }
    }

    /// Fetches the memory of the first packet and of the one behind it, whose arrival is read when the first is taken.
    #[inline]
    pub(super) fn prefetch_front(&self) {
        for index in 0..self.len.min(2) {
            prefetch::first_line(&self.slots[self.slot(index)]);
        }
    }

    /// Fetches the memory of the next free slot.
    #[inline]
    pub(super) fn prefetch_next_slot(&self) {
        if let Some(slot) = self.slots.get(self.slot(self.len)) {
            prefetch::first_line(slot);
        }
    }

    /// Bytes of memory of the ring.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    #[inline]
    fn slot(&self, index: u32) -> usize {
        self.head.wrapping_add(index) as usize & self.slots.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(Ring::FIRST_SIZE);
        let mut slots = Vec::with_capacity(size);
        while let Some(packet) = self.pop() {
            slots.push(packet);
        }
        let len = slots.len();
        slots.resize(size, Packet::BLANK);
        *self = Ring { slots: slots.into_boxed_slice(), head: 0, len: len as u32 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_while_it_grows_and_wraps() {
        let mut ring = Ring::default();
        let (mut pushed, mut popped) = (0, 0);
        for round in 1..40 {
            for _ in 0..round {
                *ring.push() = Packet { serial: pushed, ..Packet::BLANK };
                pushed += 1;
            }
            for _ in 0..round / 2 {
                assert_eq!(ring.pop().map(|packet| packet.serial), Some(popped));
                popped += 1;
            }
            assert_eq!(ring.front().map(|packet| packet.serial), Some(popped));
            assert_eq!(ring.len(), (pushed - popped) as usize);
        }
    }
}
