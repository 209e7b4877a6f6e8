//! A packet of the simulated network, and the ring in which a link keeps its packets.

use tributary_numeric::prefetch;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use super::payload::PayloadId;

/// Congestion bits and priority of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlags(u8);

impl PacketFlags {
    const CAPABLE: u8 = 1;
    const MARKED: u8 = 2;
    const PRIORITY_SHIFT: u32 = 2;
    const EVERY_HOP: u8 = 1 << 5;
    const RECORDS: u8 = 1 << 6;
    const PASSED_DETOUR: u8 = 1 << 7;

    /// Flags of a packet of this priority, 0 to 7.
    pub fn new(ecn: Ecn, priority: u8) -> PacketFlags {
        let mut flags = PacketFlags((priority & 7) << PacketFlags::PRIORITY_SHIFT);
        flags.set_ecn(ecn);
        flags
    }

    /// The same flags, for a packet that every switch on its way handles, or not.
    pub fn with_every_hop(self, every_hop: bool) -> PacketFlags {
        PacketFlags(self.0 & !PacketFlags::EVERY_HOP | if every_hop { PacketFlags::EVERY_HOP } else { 0 })
    }

    /// True if every switch on the way handles the packet.
    #[inline]
    pub fn every_hop(self) -> bool {
        self.0 & PacketFlags::EVERY_HOP != 0
    }

    /// The same flags, for a packet into which switches write records, or not.
    pub fn with_records(self, records: bool) -> PacketFlags {
        PacketFlags(self.0 & !PacketFlags::RECORDS | if records { PacketFlags::RECORDS } else { 0 })
    }

    /// True if switches write records into the packet.
    #[inline]
    pub fn takes_records(self) -> bool {
        self.0 & PacketFlags::RECORDS != 0
    }

    /// The same flags, for a packet that has passed its intermediate switch.
    pub fn with_passed_detour(self) -> PacketFlags {
        PacketFlags(self.0 | PacketFlags::PASSED_DETOUR)
    }

    /// True if the packet has passed its intermediate switch, where routing has such.
    #[inline]
    pub fn passed_detour(self) -> bool {
        self.0 & PacketFlags::PASSED_DETOUR != 0
    }

    /// The congestion bits.
    pub fn ecn(self) -> Ecn {
        match self.0 & (PacketFlags::CAPABLE | PacketFlags::MARKED) {
            0 => Ecn::NotCapable,
            PacketFlags::CAPABLE => Ecn::Capable,
            _ => Ecn::CongestionExperienced,
        }
    }

    /// Replaces the congestion bits.
    pub fn set_ecn(&mut self, ecn: Ecn) {
        let bits = match ecn {
            Ecn::NotCapable => 0,
            Ecn::Capable => PacketFlags::CAPABLE,
            Ecn::CongestionExperienced => PacketFlags::CAPABLE | PacketFlags::MARKED,
        };
        self.0 = self.0 & !(PacketFlags::CAPABLE | PacketFlags::MARKED) | bits;
    }

    /// Marks the packet if its sender supports marks; true if the packet is marked now.
    #[inline]
    pub fn mark(&mut self) -> bool {
        self.0 |= (self.0 & PacketFlags::CAPABLE) << 1;
        self.0 & PacketFlags::MARKED != 0
    }

    /// The priority, 0 to 7.
    pub fn priority(self) -> u8 {
        self.0 >> PacketFlags::PRIORITY_SHIFT & 7
    }

    /// The same flags, with another priority.
    pub fn with_priority(self, priority: u8) -> PacketFlags {
        let mask = 7 << PacketFlags::PRIORITY_SHIFT;
        PacketFlags(self.0 & !mask | (priority & 7) << PacketFlags::PRIORITY_SHIFT)
    }

    /// The flags as one byte.
    pub fn bits(self) -> u8 {
        self.0
    }
}

/// The bit that distinguishes jobs from flows in [`Packet::flow`].
pub const JOB_FLOW: u32 = 1 << 31;

/// A packet on a link. `(src, serial)` names it: every node counts the packets that it makes, copies included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it reaches the far end of the link that it is on.
    pub arrival: Time,
    /// The host or switch that made the packet.
    pub src: NodeId,
    /// The host or switch that the packet is for.
    pub dst: NodeId,
    /// The packet's number among those that its source made.
    pub serial: u32,
    /// The flow or job that the packet belongs to; equal-cost paths are chosen by it.
    pub flow: u32,
    /// The packet's payload; [`PayloadId::NONE`] for a packet that only fills a link.
    pub payload: PayloadId,
    /// Bytes of the packet on a link, framing included.
    pub bytes: u16,
    /// The receiver among several at the destination: a shard of a switch, or a tree of a job.
    pub lane: u8,
    /// Congestion bits and priority.
    pub flags: PacketFlags,
}

impl Packet {
    /// True if it belongs to a job.
    #[inline]
    pub fn is_of_job(&self) -> bool {
        self.flow & JOB_FLOW != 0
    }

    /// The number of its job, if it belongs to one.
    pub fn job(&self) -> Option<usize> {
        self.is_of_job().then_some((self.flow & !JOB_FLOW) as usize)
    }

    /// A packet for the empty slots of rings.
    pub(super) const BLANK: Packet = Packet {
        arrival: Time(0),
        src: NodeId(0),
        dst: NodeId(0),
        serial: 0,
        flow: 0,
        payload: PayloadId::NONE,
        bytes: 0,
        lane: 0,
        flags: PacketFlags(0),
    };
}

/// The bytes of a packet on a link besides its UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Bytes before and behind the UDP payload.
    pub overhead: u16,
    /// Bytes of the shortest packet, overhead included.
    pub minimum: u16,
}

impl Framing {
    /// UDP and IPv4 headers, Ethernet header and check sequence, preamble and inter-packet gap: 66 bytes; an Ethernet
    /// frame has at least 64 bytes.
    pub const ETHERNET: Framing = Framing { overhead: 8 + 20 + 18 + 20, minimum: 64 + 20 };

    /// Bytes on a link of a packet with a UDP payload of `payload` bytes.
    pub fn bytes_on_link(self, payload: usize) -> u16 {
        let bytes = payload + usize::from(self.overhead);
        u16::try_from(bytes).expect("packets were checked to fit when the job was planned").max(self.minimum)
    }
}

/// A queue of packets in one piece of memory that doubles when it is full and never shrinks.
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
    fn a_packet_fits_twice_into_a_cache_line() {
        assert_eq!(size_of::<Packet>(), 32);
    }

    #[test]
    fn flags_keep_ecn_and_priority_separate() {
        for ecn in [Ecn::NotCapable, Ecn::Capable, Ecn::CongestionExperienced] {
            for priority in 0..8 {
                let mut flags = PacketFlags::new(Ecn::Capable, priority);
                flags.set_ecn(ecn);
                assert_eq!((flags.ecn(), flags.priority(), flags.every_hop()), (ecn, priority, false));
                let flags = flags.with_every_hop(true);
                assert_eq!((flags.ecn(), flags.priority(), flags.every_hop()), (ecn, priority, true));
            }
        }
    }
}

#[cfg(test)]
mod ring_tests {
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
