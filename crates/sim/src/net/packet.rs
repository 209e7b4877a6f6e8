//! A packet of the simulated network.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use super::PayloadId;

/// Congestion bits and priority of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlags(u8);

impl PacketFlags {
    const CAPABLE: u8 = 1;
    const MARKED: u8 = 2;
    const PRIORITY_SHIFT: u32 = 2;
    const EVERY_HOP: u8 = 1 << 5;

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

    /// The flags as one byte.
    pub fn bits(self) -> u8 {
        self.0
    }
}

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
