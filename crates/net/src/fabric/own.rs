//! Packets of the fabric itself: signs of life, and packets that switches only forward. They belong to job 0 and have
//! the fabric's own key.

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{Common, kind};

use super::crossbar::Crossbar;
use super::wire::{CARRY_LEN, Carry, NO_VIA, read_hello, read_pause};

/// Handles one such packet, whose common header was read. An error says why the packet was dropped.
pub fn handle(
    crossbar: &mut Crossbar,
    now: Time,
    ingress: PortId,
    common: &Common,
    packet: &mut [u8],
    ecn: Ecn,
) -> Result<(), DropReason> {
    if ingress == PortId::UNKNOWN {
        return Err(DropReason::NotAMember);
    }
    if common.key != crossbar.fabric().key() {
        return Err(DropReason::WrongKey);
    }
    match common.kind {
        kind::HELLO => {
            let hello = read_hello(packet).ok_or(DropReason::Truncated)?;
            crossbar.hear(now, ingress, &hello);
            Ok(())
        }
        kind::CARRY => carry(crossbar, ingress, Carry::read(packet).ok_or(DropReason::Truncated)?, packet, ecn),
        kind::PAUSE => {
            let span = read_pause(packet).ok_or(DropReason::Truncated)?;
            // Only switches may order a pause. Hosts take all packets at once.
            if crossbar.pause(now, ingress, span) { Ok(()) } else { Err(DropReason::NotAMember) }
        }
        _ => Err(DropReason::BadKind),
    }
}

fn carry(
    crossbar: &mut Crossbar,
    ingress: PortId,
    mut carry: Carry,
    packet: &mut [u8],
    ecn: Ecn,
) -> Result<(), DropReason> {
    debug_assert!(packet.len() >= CARRY_LEN);
    if carry.via == crossbar.node() {
        carry.via = NO_VIA;
        carry.emit_own(packet);
    }
    // Only hosts receive such packets. A packet for a switch would go round for ever.
    if carry.to.0 >= crossbar.fabric().cabling.hosts {
        return Err(DropReason::NoRoute);
    }
    let next = if carry.via == NO_VIA { carry.to } else { carry.via };
    crossbar.forward(ingress, next, packet, ecn, carry.udp_port);
    Ok(())
}
