//! A packet as the network carries it.

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

    /// The same, for a packet that every switch on its way handles, or not.
    pub fn with_every_hop(self, every_hop: bool) -> PacketFlags {
        PacketFlags(self.0 & !PacketFlags::EVERY_HOP | if every_hop { PacketFlags::EVERY_HOP } else { 0 })
    }

    /// Every switch on the way handles the packet.
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

    /// Marks the packet if its sender takes part; true if it is marked now.
    #[inline]
    pub fn mark(&mut self) -> bool {
        self.0 |= (self.0 & PacketFlags::CAPABLE) << 1;
        self.0 & PacketFlags::MARKED != 0
    }

    /// 0 to 7.
    pub fn priority(self) -> u8 {
        self.0 >> PacketFlags::PRIORITY_SHIFT & 7
    }

    /// As one byte.
    pub fn bits(self) -> u8 {
        self.0
    }
}

/// A packet on a link. `(src, serial)` names it: every node counts the packets that it makes, copies included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it reaches the far end of the link that it is on.
    pub arrival: Time,
    /// The host or switch that made it.
    pub src: NodeId,
    /// The host or switch that it is for.
    pub dst: NodeId,
    /// Which of its maker's packets it is.
    pub serial: u32,
    /// The flow or the job that it belongs to; equal-cost paths are chosen by it.
    pub flow: u32,
    /// What it carries; [`PayloadId::NONE`] for a packet that only fills a link.
    pub payload: PayloadId,
    /// Bytes that it occupies on a link, framing included.
    pub bytes: u16,
    /// Which of several receivers at its destination: the part of a switch, the tree of a job.
    pub lane: u8,
    /// Congestion bits and priority.
    pub flags: PacketFlags,
}

impl Packet {
    /// A packet that is nowhere, for the empty places of rings.
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

/// What a UDP payload costs on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Bytes before and behind the UDP payload.
    pub overhead: u16,
    /// Bytes of the shortest packet, overhead included.
    pub minimum: u16,
}

impl Framing {
    /// UDP and IPv4 headers, Ethernet header and check sequence, preamble and inter-packet gap: 66 bytes; an Ethernet
    /// frame of 64 bytes at least.
    pub const ETHERNET: Framing = Framing { overhead: 8 + 20 + 18 + 20, minimum: 64 + 20 };

    /// Bytes on a link of a packet with so much UDP payload.
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
    fn flags_keep_ecn_and_priority_apart() {
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
