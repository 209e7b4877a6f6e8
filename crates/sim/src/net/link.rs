//! One direction of a cable with the output queue before it, as a pipe. When a packet joins the queue, its departure
//! and arrival are known at once (`max(now, busy) + transmission`), and only the first arrival is an event.
//!
//! So the queue itself is never stored. Its length is `busy_until - now`, in time; its limit and the lengths from which on it
//! marks are kept in time too, so that no packet costs a division.

use tributary_proto::congestion::Marking;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::packet::{Packet, PacketFlags, Ring};
use super::payload::PayloadId;
use super::trace::LossCause;
use crate::topology::LinkSpec;

/// The arrival of a packet that has not begun to leave.
const UNKNOWN: Time = Time(u64::MAX);

/// The counts of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets that joined the queue.
    pub packets: u64,
    /// Their bytes, framing included.
    pub bytes: u64,
    /// Packets that were marked.
    pub marks: u64,
    /// The most bytes that ever waited, including the packet in transmission.
    pub max_queue_bytes: u64,
    /// How often the far end ordered the near end to PAUSE.
    pub pauses: u64,
    /// The most bytes from this link that waited at the far end at a time; counted if PAUSE is used.
    pub max_ingress_bytes: u64,
    /// Packets that were lost at this link, by cause.
    pub losses: [u64; LossCause::ALL.len()],
}

/// One direction of a cable. Joining the queue touches the first cache line, arriving the second.
#[repr(C, align(64))]
pub struct Link {
    busy_until: Time,
    ps_per_byte: u64,
    delay: Span,
    /// The queue's limit, as time.
    pub(super) limit: Span,
    /// The length above which packets are marked, as time; never reached if there is none.
    mark_above: Span,
    packets: u64,
    bytes: u64,
    /// The packets that have not begun to leave, as time; only if PAUSE decides when they leave.
    pub(super) waiting: Span,

    ring: Ring,
    /// The node at the near end.
    pub from: NodeId,
    /// The node at the far end.
    pub to: NodeId,
    /// The port at which packets come in there.
    pub to_port: u16,
    /// True if packets need more care: the link may lose them, is down, shares a buffer, has classes or cuts through.
    pub faulty: bool,
    /// True if no packet gets through.
    pub down: bool,
    /// True if its queue is part of a switch's shared buffer.
    pub(super) shares_buffer: bool,
    /// True if it has a queue for each class of packets.
    pub(super) serves_classes: bool,
    /// True if the far end forwards what only passes there as soon as its head is there.
    pub(super) cuts_through: bool,
    /// True if another thread runs the node at the far end.
    pub(super) crosses: bool,
    marks: u64,
    max_backlog: Span,
    /// What few links need, out of line so that a link fits into two cache lines.
    rare: Option<Box<Rare>>,
}

/// State that most links do not need.
#[derive(Clone, Default)]
struct Rare {
    /// Picoseconds that all bytes so far took in addition to their time at the present rate, because earlier rates
    /// differed.
    excess: i64,
    /// Where chance decides about marks: the lengths, as time.
    marking: Option<Marking>,
}

/// The lengths from which on packets are marked by chance and all are, as time.
fn marks(spec: &LinkSpec) -> (Span, Span) {
    let time = |bytes| spec.rate.time_of(bytes);
    spec.mark_bytes
        .map_or((Span(u64::MAX), Span(u64::MAX)), |marks| (time(marks.mark_above), time(marks.mark_all_above)))
}

impl Link {
    /// A link between two nodes. `latency` is what packets spend inside the far one before they reach an output queue.
    /// `seed` decides which packets are marked where chance does.
    pub fn new(spec: &LinkSpec, from: NodeId, to: NodeId, to_port: u16, latency: Span, seed: u64) -> Link {
        let (mark_above, all_above) = marks(spec);
        let marking = (all_above > mark_above).then(|| Marking::new(mark_above.0, all_above.0, seed));
        Link {
            busy_until: Time::ZERO,
            ps_per_byte: spec.rate.ps_per_byte(),
            delay: spec.delay + latency,
            limit: spec.rate.time_of(spec.queue_bytes),
            mark_above,
            packets: 0,
            bytes: 0,
            waiting: Span::ZERO,
            ring: Ring::default(),
            from,
            to,
            to_port,
            faulty: false,
            down: false,
            shares_buffer: false,
            serves_classes: false,
            cuts_through: false,
            crosses: false,
            marks: 0,
            max_backlog: Span::ZERO,
            rare: marking.map(|marking| Box::new(Rare { excess: 0, marking: Some(marking) })),
        }
    }

    /// Packets that join the queue from now on leave at another rate; packets in the queue leave as they would have.
    pub(super) fn set_rate(&mut self, spec: &LinkSpec) {
        let (taken, most) = (self.sending_time(), self.bytes_of(self.max_backlog));
        self.ps_per_byte = spec.rate.ps_per_byte();
        self.limit = spec.rate.time_of(spec.queue_bytes);
        self.max_backlog = self.transmission(most);
        let excess = taken.0 as i64 - self.transmission(self.bytes).0 as i64;
        let (mark_above, all_above) = marks(spec);
        self.mark_above = mark_above;
        let rare = self.rare.get_or_insert_default();
        rare.excess = excess;
        rare.marking.iter_mut().for_each(|marking| marking.rescale(mark_above.0, all_above.0));
    }

    /// The time that the transmission of all packets takes or has taken that joined the queue.
    fn sending_time(&self) -> Span {
        let excess = self.rare.as_ref().map_or(0, |rare| rare.excess);
        Span(self.transmission(self.bytes).0.saturating_add_signed(excess))
    }

    /// Marks a packet that finds this much waiting, if it should be marked, and counts it.
    #[inline]
    fn mark(&mut self, backlog: Span, flags: &mut PacketFlags) {
        if backlog > self.mark_above && self.should_mark(backlog) && flags.mark() {
            self.marks += 1;
        }
    }

    /// Whether a packet is marked that finds more than `mark_above`.
    #[inline]
    fn should_mark(&mut self, backlog: Span) -> bool {
        let marking = self.rare.as_mut().and_then(|rare| rare.marking.as_mut());
        marking.is_none_or(|marking| marking.should_mark(backlog.0))
    }

    /// Puts a packet into the queue, and returns its arrival; `None` if the queue is full. The caller passes it on to
    /// the far end (see [`Link::push_in_flight`]).
    #[inline]
    pub(super) fn enqueue(&mut self, now: Time, bytes: u16, flags: &mut PacketFlags) -> Option<Time> {
        let start = self.busy_until.max(now);
        let backlog = start.since(now);
        let transmission = Span((u64::from(bytes) * self.ps_per_byte) >> 16);
        let filled = backlog + transmission;
        if filled > self.limit {
            return None;
        }
        self.mark(backlog, flags);
        self.busy_until = start + transmission;
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.max_backlog = self.max_backlog.max(filled);
        Some(self.busy_until + self.delay)
    }

    /// Counts a packet behind those that wait, and marks it for what it finds `before` it. The caller knows that it fits. It
    /// leaves at once (see [`Link::begin`] and [`Link::push_in_flight`]), or it waits ([`Link::wait`]).
    #[inline]
    pub(super) fn join_waiting(&mut self, now: Time, bytes: u16, before: Span, flags: &mut PacketFlags) {
        self.mark(before, flags);
        let backlog = self.backlog(now);
        let transmission = self.transmission(u64::from(bytes));
        self.waiting = self.waiting + transmission;
        self.max_backlog = self.max_backlog.max(backlog + transmission);
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// A slot for a packet that is on its way to the far end, behind all others.
    #[inline]
    pub(super) fn push_in_flight(&mut self) -> &mut Packet {
        self.ring.push()
    }

    /// Takes over the state of the partition that runs the sender.
    pub(super) fn absorb_near_end(&mut self, other: &Link) {
        self.busy_until = other.busy_until;
        (self.packets, self.bytes, self.marks) = (other.packets, other.bytes, other.marks);
        (self.waiting, self.max_backlog) = (other.waiting, other.max_backlog);
        self.rare.clone_from(&other.rare);
    }

    /// Keeps a packet that was counted and does not leave at once, behind the packets in flight.
    #[inline]
    pub(super) fn wait(&mut self, packet: Packet) {
        *self.ring.push() = Packet { arrival: UNKNOWN, ..packet };
    }

    /// The first waiting packet leaves, and `more` still wait. Returns its bytes, and its arrival if that is the link's
    /// next.
    #[inline]
    pub(super) fn begin_first(&mut self, now: Time, more: usize) -> (u16, Option<Time>) {
        let index = self.ring.len() - 1 - more;
        let bytes = self.ring.get_mut(index).bytes;
        let arrival = self.begin(now, bytes);
        self.ring.get_mut(index).arrival = arrival;
        (bytes, (index == 0).then_some(arrival))
    }

    /// The last packet in flight, with this many waiting behind it.
    pub(super) fn last_begun(&mut self, waiting: usize) -> Packet {
        *self.ring.get_mut(self.ring.len() - 1 - waiting)
    }

    /// A waiting packet begins to leave; returns its arrival. The caller passes it on to the far end (see [`Link::push_in_flight`]).
    #[inline]
    pub(super) fn begin(&mut self, now: Time, bytes: u16) -> Time {
        let transmission = self.transmission(u64::from(bytes));
        self.waiting = self.waiting - transmission;
        self.busy_until = self.busy_until.max(now) + transmission;
        self.busy_until + self.delay
    }

    /// Removes the packet that arrives first; returns it, and the arrival of the next one.
    #[inline]
    pub(super) fn arrive(&mut self) -> (Option<Packet>, Option<Time>) {
        let packet = self.ring.pop();
        (packet, self.ring.front().map(|next| next.arrival).filter(|&arrival| arrival != UNKNOWN))
    }

    /// Removes the first packet.
    pub(super) fn take_first(&mut self) -> Option<Packet> {
        self.ring.pop()
    }

    /// Fetches the memory of the packet that arrives first.
    #[inline]
    pub(super) fn prefetch_front(&self) {
        self.ring.prefetch_front();
    }

    /// Fetches the memory of the first waiting packet.
    #[inline]
    pub(super) fn prefetch_waiting(&self, waiting: usize) {
        if waiting > 0 {
            self.ring.prefetch_from_back(waiting - 1);
        }
    }

    /// Fetches the memory of the next free slot.
    #[inline]
    pub(super) fn prefetch_next_slot(&self) {
        self.ring.prefetch_next_slot();
    }

    /// The payload of the packet that arrives first.
    #[inline]
    pub(super) fn front_payload(&self) -> PayloadId {
        self.ring.front().map_or(PayloadId::NONE, |packet| packet.payload)
    }

    /// True if the packet at the head of the ring is the only one, so that its arrival must be scheduled.
    #[inline]
    pub(super) fn was_idle(&self) -> bool {
        self.ring.len() == 1
    }

    /// True if no packet is in the queue or on the wire.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// When the queue will be empty, if no packet joins it; if PAUSE is used, when the last packet that has begun to
    /// leave will have left.
    #[inline]
    pub fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// Makes the link pause before the next packet.
    pub(super) fn stall(&mut self, now: Time, span: Span) {
        self.busy_until = self.busy_until.max(now) + span;
    }

    /// The waiting bytes, as time.
    #[inline]
    pub fn backlog(&self, now: Time) -> Span {
        self.busy_until.since(now) + self.waiting
    }

    /// True if more than half of the queue is taken.
    #[inline]
    pub fn over_half(&self, now: Time) -> bool {
        self.backlog(now).0 > self.limit.0 / 2
    }

    /// The waiting bytes, including the rest of the packet in transmission.
    #[inline]
    pub fn queued_bytes(&self, now: Time) -> u64 {
        self.bytes_of(self.backlog(now))
    }

    /// Bits per second.
    pub fn rate(&self) -> u64 {
        (8e12 * 65_536.0 / self.ps_per_byte as f64).round() as u64
    }

    fn bytes_of(&self, span: Span) -> u64 {
        match span.0.checked_mul(1 << 16) {
            Some(scaled) => scaled / self.ps_per_byte,
            None => ((u128::from(span.0) << 16) / u128::from(self.ps_per_byte)) as u64,
        }
    }

    /// The transmission time of a number of bytes.
    pub fn transmission(&self, bytes: u64) -> Span {
        Span(((u128::from(bytes) * u128::from(self.ps_per_byte)) >> 16) as u64)
    }

    /// Propagation and the far node's latency.
    pub fn delay(&self) -> Span {
        self.delay
    }

    /// The counts of this link. The fabric counts losses.
    pub fn counters(&self) -> LinkCounters {
        LinkCounters {
            packets: self.packets,
            bytes: self.bytes,
            marks: self.marks,
            max_queue_bytes: self.bytes_of(self.max_backlog),
            pauses: 0,
            max_ingress_bytes: 0,
            losses: [0; LossCause::ALL.len()],
        }
    }

    /// The time that the link spent sending, from the beginning to now.
    pub fn busy_time(&self, now: Time) -> Span {
        Span(self.sending_time().0.saturating_sub(self.backlog(now).0))
    }

    /// Bytes of memory of the link.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Link>() + self.ring.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Rate;

    #[test]
    fn a_packet_that_waits_behind_others_arrives_only_after_it_has_begun_to_leave() {
        let spec = LinkSpec {
            rate: Rate(100_000_000_000),
            delay: Span::from_nanos(100),
            queue_bytes: 1 << 20,
            mark_bytes: None,
        };
        let mut link = Link::new(&spec, NodeId(0), NodeId(1), 0, Span::ZERO, 0);
        let now = Time::ZERO;
        let packet = |serial| Packet { serial, bytes: 1_000, ..Packet::BLANK };
        let serial = |packet: Option<Packet>| packet.map(|packet| packet.serial);
        for _ in 0..3 {
            link.join_waiting(now, 1_000, Span::ZERO, &mut PacketFlags::default());
        }
        let first = link.begin(now, 1_000);
        *link.push_in_flight() = Packet { arrival: first, ..packet(0) };
        link.wait(packet(1));
        link.wait(packet(2));

        let (arrived, next) = link.arrive();
        assert_eq!((serial(arrived), next), (Some(0), None), "the others have not begun to leave");
        let second = first + link.transmission(1_000);
        assert_eq!(link.begin_first(now, 1), (1_000, Some(second)), "nothing is on its way before it");
        assert_eq!(link.begin_first(now, 0), (1_000, None), "the link's next arrival is another's");
        assert_eq!(serial(Some(link.last_begun(0))), Some(2));

        let (arrived, next) = link.arrive();
        assert_eq!((serial(arrived), next), (Some(1), Some(second + link.transmission(1_000))));
        let (arrived, next) = link.arrive();
        assert_eq!((serial(arrived), next, link.is_empty()), (Some(2), None, true));
    }
}
