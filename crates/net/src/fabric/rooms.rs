//! Lossless fabrics: how many bytes came in by each port and have not left, and when the sender at the port is told to
//! pause.
//!
//! The rules are the simulator's (`sim/net/lossless.rs`). A packet takes room in the port by which it came in. A packet
//! that a switch makes takes room in the port by which the packet came in that it is made of. When a port holds more
//! than the threshold, the other end of its cable is told to stop, and it is told to go on when enough bytes have left.
//! An order holds for [`PAUSE_FOR`] and is repeated, so that a lost order costs little. Some packets take no room, so
//! that ports never wait for each other in a circle: docs/fabric.md, *Lossless*.

use tributary_control::fabric::Thresholds;
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::time::{Span, Time};

use crate::event_loop::Origin;

/// How long an order to pause holds.
pub const PAUSE_FOR: Span = Span::from_millis(100);
/// The interval at which such an order is repeated.
const REPEAT: Span = Span::from_millis(20);

/// The room that a packet in a queue takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charge {
    /// The packet takes no room.
    #[default]
    Nobody,
    /// The packet takes room in the port by which it came in.
    Port(PortId),
    /// Several copies share the room of one packet.
    Copies(CopiesId),
}

/// Copies of one packet that wait in several queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiesId(u32);

struct Copies {
    port: PortId,
    bytes: u64,
    left: u32,
}

/// The room of a port for packets that come in.
struct Room {
    /// True if the other end is closer to the hosts than this switch.
    leads_down: bool,
    limit: u64,
    held: u64,
    peak: u64,
    /// True if the last order was to stop.
    pausing: bool,
    pauses: u64,
    /// When the next order is due, either a new one or the last one again.
    tell_at: Option<Time>,
    /// How often the other end was told to go on since the last pause.
    told: u32,
}

/// What an operator sees of a port's room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomReport {
    /// Bytes that came in and have not left, as on the wire.
    pub held_bytes: u64,
    /// The most bytes that were ever held.
    pub peak_bytes: u64,
    /// How often the sender was told to pause.
    pub pauses: u64,
}

/// The port by which a packet came in has no room for it, because the headroom was too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The rooms of all ports.
pub struct Rooms {
    thresholds: Thresholds,
    ports: Vec<Room>,
    copies: Vec<Copies>,
    free_copies: Vec<CopiesId>,
}

impl Rooms {
    /// Empty rooms: for each port its size in bytes, and whether the port leads down.
    pub fn new(thresholds: Thresholds, ports: impl Iterator<Item = (u64, bool)>) -> Rooms {
        let room = |(limit, leads_down)| Room {
            leads_down,
            limit,
            held: 0,
            peak: 0,
            pausing: false,
            pauses: 0,
            tell_at: None,
            told: 0,
        };
        Rooms { thresholds, ports: ports.map(room).collect(), copies: Vec::new(), free_copies: Vec::new() }
    }

    /// Takes room for a packet that leaves by these ports.
    pub fn charge(&mut self, origin: Origin, exits: &[PortId], bytes: u64) -> Result<Charge, NoRoom> {
        let (from, is_late) = match origin {
            Origin::Own => return Ok(Charge::Nobody),
            Origin::Packet(from) => (from, false),
            Origin::Collected(from) => (from, true),
        };
        let may_wait = exits.iter().all(|&exit| self.may_wait(from, exit));
        let Some(room) = self.ports.get_mut(from.index()).filter(|_| may_wait && !exits.is_empty()) else {
            return Ok(Charge::Nobody);
        };
        if room.held + bytes > room.limit {
            // If a machine had collected the data, they stay in its memory, and the sender was told to pause before.
            return if is_late { Ok(Charge::Nobody) } else { Err(NoRoom) };
        }
        room.held += bytes;
        room.peak = room.peak.max(room.held);
        if room.held > self.thresholds.pause_above && !room.pausing {
            (room.pausing, room.tell_at) = (true, Some(Time::ZERO));
            room.pauses += 1;
        }
        Ok(match exits.len() {
            1 => Charge::Port(from),
            left => Charge::Copies(self.share(Copies { port: from, bytes, left: left as u32 })),
        })
    }

    fn share(&mut self, copies: Copies) -> CopiesId {
        if let Some(id) = self.free_copies.pop() {
            self.copies[id.0 as usize] = copies;
            return id;
        }
        self.copies.push(copies);
        CopiesId(self.copies.len() as u32 - 1)
    }

    /// Frees the room of a packet of this many bytes that has left its queue or was dropped there.
    pub fn free(&mut self, charge: Charge, bytes: u64) {
        let (port, bytes) = match charge {
            Charge::Nobody => return,
            Charge::Port(port) => (port, bytes),
            Charge::Copies(id) => {
                let copies = &mut self.copies[id.0 as usize];
                copies.left -= 1;
                if copies.left > 0 {
                    return;
                }
                self.free_copies.push(id);
                (copies.port, copies.bytes)
            }
        };
        let room = &mut self.ports[port.index()];
        room.held -= bytes;
        if room.pausing && room.held <= self.thresholds.go_on_at {
            (room.pausing, room.tell_at, room.told) = (false, Some(Time::ZERO), 0);
        }
    }

    /// True if a packet that came in by `from` may take room while it waits for `over`: one of the two ports must lead
    /// down. If packets on their way from above waited to go up again, ports could wait for each other in a circle.
    fn may_wait(&self, from: PortId, over: PortId) -> bool {
        let leads_down = |port: PortId| self.ports.get(port.index()).is_some_and(|room| room.leads_down);
        leads_down(from) || leads_down(over)
    }

    /// When the next order to a sender is due.
    pub fn due(&self) -> Option<Time> {
        self.ports.iter().filter_map(|room| room.tell_at).min()
    }

    /// The next order that is due: its port, and the time to pause.
    pub fn next_order(&mut self, now: Time) -> Option<(PortId, Span)> {
        let is_due = |room: &Room| room.tell_at.is_some_and(|at| at <= now);
        let number = self.ports.iter().position(is_due)?;
        let room = &mut self.ports[number];
        room.told += 1;
        // The order to go on is sent twice. A sender that missed it would stand still until its order to stop has run
        // out.
        room.tell_at = (room.pausing || room.told < 2).then_some(now + REPEAT);
        Some((PortId(number as u16), if room.pausing { PAUSE_FOR } else { Span(0) }))
    }

    /// The state of a port's room.
    pub fn report(&self, port: usize) -> RoomReport {
        let report = |room: &Room| RoomReport { held_bytes: room.held, peak_bytes: room.peak, pauses: room.pauses };
        self.ports.get(port).map(report).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [PortId; 2] = [PortId(0), PortId(1)];
    const UP: [PortId; 2] = [PortId(2), PortId(3)];
    const BYTES: u64 = 1_000;

    /// The rooms of a leaf with two hosts and two spines. Each port has room for ten packets, pauses above five, and
    /// goes on at three.
    fn rooms() -> Rooms {
        let thresholds = Thresholds { pause_above: 5_000, go_on_at: 3_000 };
        Rooms::new(thresholds, [true, true, false, false].map(|down| (10 * BYTES, down)).into_iter())
    }

    fn orders(rooms: &mut Rooms, now: Time) -> Vec<(PortId, Span)> {
        std::iter::from_fn(|| rooms.next_order(now)).collect()
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_sender_is_stopped_above_the_threshold_reminded_and_let_go_below_it() {
        let mut rooms = rooms();
        let mut charges = Vec::new();
        for packet in 1..=6 {
            assert!(orders(&mut rooms, ms(1)).is_empty(), "before packet {packet}");
            charges.push(rooms.charge(Origin::Packet(HOSTS[0]), &[UP[0]], BYTES).unwrap());
        }
        assert_eq!(orders(&mut rooms, ms(1)), [(HOSTS[0], PAUSE_FOR)]);
        assert_eq!(rooms.due(), Some(ms(21)));
        assert_eq!(orders(&mut rooms, ms(21)), [(HOSTS[0], PAUSE_FOR)], "orders run out");
        for left in [5, 4] {
            rooms.free(charges.pop().unwrap(), BYTES);
            assert!(orders(&mut rooms, ms(22)).is_empty(), "{left} are left");
        }
        rooms.free(charges.pop().unwrap(), BYTES);
        assert_eq!(orders(&mut rooms, ms(23)), [(HOSTS[0], Span(0))]);
        assert_eq!(orders(&mut rooms, ms(43)), [(HOSTS[0], Span(0))], "it may have missed the first");
        assert_eq!(rooms.due(), None);
        assert_eq!(rooms.report(0), RoomReport { held_bytes: 3_000, peak_bytes: 6_000, pauses: 1 });
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_was_collected_waits_at_nobodys_cost() {
        let mut rooms = rooms();
        (0..10).for_each(|_| assert!(rooms.charge(Origin::Packet(HOSTS[1]), &[UP[0]], BYTES).is_ok()));
        assert_eq!(rooms.charge(Origin::Packet(HOSTS[1]), &[UP[0]], BYTES), Err(NoRoom));
        assert_eq!(rooms.charge(Origin::Collected(HOSTS[1]), &[UP[0]], BYTES), Ok(Charge::Nobody));
        assert_eq!(rooms.charge(Origin::Own, &[UP[0]], BYTES), Ok(Charge::Nobody));
    }

    #[test]
    fn copies_hold_one_packets_room_until_the_last_one_has_left() {
        let mut rooms = rooms();
        let charge = rooms.charge(Origin::Packet(UP[0]), &HOSTS, BYTES).unwrap();
        assert_eq!(rooms.report(2).held_bytes, BYTES);
        rooms.free(charge, BYTES);
        assert_eq!(rooms.report(2).held_bytes, BYTES);
        rooms.free(charge, BYTES);
        assert_eq!(rooms.report(2).held_bytes, 0);
        assert_eq!(rooms.charge(Origin::Packet(UP[1]), &HOSTS, BYTES), Ok(charge), "its place is taken again");
    }

    #[test]
    fn what_came_from_above_never_waits_to_go_up() {
        let mut rooms = rooms();
        assert_eq!(rooms.charge(Origin::Packet(UP[0]), &[UP[1]], BYTES), Ok(Charge::Nobody));
        assert_eq!(rooms.charge(Origin::Packet(UP[0]), &[HOSTS[0], UP[1]], BYTES), Ok(Charge::Nobody));
        assert_eq!(rooms.charge(Origin::Packet(HOSTS[0]), &[UP[1]], BYTES), Ok(Charge::Port(HOSTS[0])));
        assert_eq!(rooms.charge(Origin::Packet(PortId::UNKNOWN), &[UP[1]], BYTES), Ok(Charge::Nobody));
    }
}
