//! A queue of packets in one piece of memory that doubles when it is full and never shrinks.

use tributary_numeric::prefetch;

use super::Packet;

/// First in, first out.
#[derive(Default)]
pub(super) struct Ring {
    /// Empty, or a power of two.
    places: Box<[Packet]>,
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

    /// Adds a place for one more packet, behind all others.
    #[inline]
    pub(super) fn push(&mut self) -> &mut Packet {
        if self.len as usize == self.places.len() {
            self.grow();
        }
        let place = self.place(self.len);
        self.len += 1;
        &mut self.places[place]
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Packet> {
        if self.len == 0 {
            return None;
        }
        let packet = self.places[self.place(0)];
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        Some(packet)
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Packet> {
        if self.len == 0 { None } else { Some(&self.places[self.place(0)]) }
    }

    /// The packet with so many packets before it.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut Packet {
        debug_assert!(index < self.len());
        let place = self.place(index as u32);
        &mut self.places[place]
    }

    /// Fetches the memory of the packet with so many packets behind it.
    #[inline]
    pub(super) fn prefetch_from_back(&self, behind: usize) {
        let index = self.len.wrapping_sub(1 + behind as u32);
        if let Some(packet) = self.places.get(self.place(index)) {
            prefetch::first_line(packet);
        }
    }

    /// Fetches the memory of the first packet and of the one behind it, whose arrival is read when the first is taken.
    #[inline]
    pub(super) fn prefetch_front(&self) {
        for index in 0..self.len.min(2) {
            prefetch::first_line(&self.places[self.place(index)]);
        }
    }

    /// Fetches the memory of the next packet's place.
    #[inline]
    pub(super) fn prefetch_end(&self) {
        if let Some(place) = self.places.get(self.place(self.len)) {
            prefetch::first_line(place);
        }
    }

    /// Bytes of memory of the ring.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    #[inline]
    fn place(&self, index: u32) -> usize {
        self.head.wrapping_add(index) as usize & self.places.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.places.len() * 2).max(Ring::FIRST_SIZE);
        let mut places = Vec::with_capacity(size);
        while let Some(packet) = self.pop() {
            places.push(packet);
        }
        let len = places.len();
        places.resize(size, Packet::BLANK);
        *self = Ring { places: places.into_boxed_slice(), head: 0, len: len as u32 };
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
