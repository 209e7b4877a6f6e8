//! The sending end of a flow: which packets are in flight or lost, and what the window and the rate allow.

use std::collections::VecDeque;

use tributary_proto::congestion::{Ack, Controller, HopRecord, Limits, Loss, Progress, RttEstimator, Settings};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::segment::{BEYOND_UDP, Body, Segment};
use super::spray::{Entropies, path};
use super::{Recovery, TransportSettings};
use crate::net::Framing;

/// The least window (RFC 8257 leaves it to the sender's TCP; Linux keeps two packets).
const MIN_WINDOW: u32 = 2;
/// The receiver sets no limit.
const MAX_WINDOW: u32 = 1 << 20;
/// A window counts as used if no more packets than this would still fit.
const SLACK: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    Lost,
    Arrived,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    transmission: u64,
    sent_at: Time,
    state: State,
    entropy: u8,
}

/// A flow at its sender.
#[derive(Debug)]
pub(super) struct Sender {
    /// Its receiver.
    pub to: NodeId,
    /// True if the run waits for it.
    pub awaited: bool,
    /// The lane of its packets: not 0 if a training step waits for it.
    pub lane: u8,
    /// True while it is queued for sending.
    pub ready: bool,
    /// Its packets carry what switches write into them.
    pub has_telemetry: bool,
    number: u32,
    bytes: u64,
    packet_bytes: u16,
    packets: u32,
    /// The first packet that has not arrived, which is `sent[0]`.
    base: u32,
    sent: VecDeque<Sent>,
    /// Transmissions and their packets, oldest first; obsolete if the packet was sent again or has arrived.
    order: VecDeque<(u64, u32)>,
    /// Packets to send again; obsolete if one has arrived.
    lost: VecDeque<u32>,
    in_flight: u32,
    next_transmission: u64,
    newest_arrived: Option<u64>,
    reordering: u64,
    recovery: Recovery,
    entropies: Entropies,
    /// When the rate allows the next packet.
    next_send: Time,
    framing: Framing,
    congestion: Box<dyn Controller>,
    rtt: RttEstimator,
    /// Timeouts since the last progress.
    timeouts: u32,
    /// When the timeout began.
    timer_start: Time,
    /// Packets sent again.
    pub retransmissions: u64,
}

impl Sender {
    /// A flow of `bytes` bytes, at least one; `None` if it has more packets than there are packet numbers.
    pub fn new(settings: &TransportSettings, number: u32, to: NodeId, bytes: u64, awaited: bool) -> Option<Sender> {
        let packets = u32::try_from(bytes.div_ceil(u64::from(settings.packet_bytes))).ok()?.max(1);
        let limits = Limits { initial: settings.initial_window, min: MIN_WINDOW, max: MAX_WINDOW };
        let packet_bytes = BEYOND_UDP + usize::from(settings.packet_bytes);
        let &TransportSettings { target_delay, line_rate, base_rtt, .. } = settings;
        let controls = Settings { packet_bytes, target_delay, line_rate, base_rtt, ..Settings::new(limits) };
        Some(Sender {
            to,
            awaited,
            lane: 0,
            ready: false,
            has_telemetry: settings.has_telemetry(),
            number,
            bytes,
            packet_bytes: settings.packet_bytes,
            packets,
            base: 0,
            sent: VecDeque::new(),
            order: VecDeque::new(),
            lost: VecDeque::new(),
            in_flight: 0,
            next_transmission: 0,
            newest_arrived: None,
            reordering: u64::from(settings.reordering),
            recovery: settings.recovery,
            entropies: Entropies::new(settings.spray),
            next_send: Time::ZERO,
            framing: settings.framing,
            congestion: (settings.congestion_control.make)(&controls),
            rtt: RttEstimator::new(settings.timers),
            timeouts: 0,
            timer_start: Time::ZERO,
            retransmissions: 0,
        })
    }

    /// True if all packets have arrived.
    pub fn is_done(&self) -> bool {
        self.base == self.packets
    }

    /// The window, in packets.
    pub fn window(&self) -> u64 {
        self.congestion.window()
    }

    /// When the rate allows a packet.
    pub fn next_send(&self) -> Time {
        self.next_send
    }

    /// What the switches on the path wrote into the packet whose acknowledgement follows.
    pub fn handle_telemetry(&mut self, records: &[HopRecord]) {
        self.congestion.on_telemetry(records);
    }

    /// True if there is a packet to send and the window allows it.
    pub fn may_send(&mut self) -> bool {
        while self.lost.front().is_some_and(|&packet| !self.is_lost(packet)) {
            self.lost.pop_front();
        }
        let any = !self.lost.is_empty() || self.next_new() < self.packets;
        any && u64::from(self.in_flight) < self.congestion.window()
    }

    /// By which switches choose the path of the next packet.
    pub fn next_path(&self) -> u32 {
        path(self.number, self.entropies.next())
    }

    /// The next packet; call only after [`Sender::may_send`].
    pub fn transmit(&mut self, now: Time) -> Segment {
        let transmission = self.next_transmission;
        self.next_transmission += 1;
        if self.in_flight == 0 {
            self.timer_start = now;
        }
        self.in_flight += 1;
        let sent = Sent { transmission, sent_at: now, state: State::InFlight, entropy: self.entropies.take() };
        let packet = match self.lost.pop_front() {
            Some(packet) => {
                self.sent[(packet - self.base) as usize] = sent;
                self.retransmissions += 1;
                packet
            }
            None => {
                self.sent.push_back(sent);
                self.next_new() - 1
            }
        };
        self.order.push_back((transmission, packet));
        let bytes = (self.bytes - u64::from(packet) * u64::from(self.packet_bytes)).min(u64::from(self.packet_bytes));
        if let Some(rate) = self.congestion.rate() {
            let on_link = self.framing.bytes_on_link(BEYOND_UDP + bytes as usize);
            self.next_send = self.next_send.max(now) + Span((f64::from(on_link) * 8e12 / rate) as u64);
        }
        let in_order = self.recovery == Recovery::GoBackN;
        let body = Body::Data { bytes: bytes as u16, packets: self.packets, in_order };
        Segment { flow: self.number, packet, transmission: transmission as u32, body }
    }

    /// The receiver has packet `packet` of transmission `transmission`, which came `marked` or not, and all packets
    /// before `next`. False if that is impossible.
    pub fn handle_ack(&mut self, now: Time, packet: u32, transmission: u32, marked: bool, next: u32) -> bool {
        if next > self.next_new() || packet >= self.next_new() {
            return false;
        }
        let limited = u64::from(self.in_flight + SLACK) >= self.congestion.window();
        let echoed = self.entry(packet).filter(|sent| sent.transmission as u32 == transmission).copied();
        let rtt = echoed.map(|sent| now.since(sent.sent_at));
        if let (Some(sent), Some(rtt)) = (echoed, rtt) {
            self.newest_arrived = self.newest_arrived.max(Some(sent.transmission));
            self.rtt.sample(rtt);
            self.entropies.acknowledged(now, sent.entropy, marked);
        }
        let mut fresh = u32::from(self.arrived(packet));
        for packet in self.base..next {
            fresh += u32::from(self.arrived(packet));
        }
        self.forget_arrived(now, fresh);
        if fresh > 0 || marked {
            let newest = self.newest_arrived.unwrap_or(0);
            let (marked, next) = (u32::from(marked), self.next_transmission);
            let progress = Progress::default();
            self.congestion.on_ack(&Ack { now, packets: fresh, marked, newest, next, rtt, limited, progress });
        }
        if self.recovery == Recovery::Selective {
            self.find_losses(now);
        }
        true
    }

    /// The receiver has refused a packet that came after a gap: all from the gap on is sent again. False if that is
    /// impossible.
    pub fn handle_nack(&mut self, now: Time, next: u32) -> bool {
        if next >= self.next_new() {
            return false;
        }
        let mut fresh = 0;
        for packet in self.base..next {
            fresh += u32::from(self.arrived(packet));
        }
        self.forget_arrived(now, fresh);
        if next == self.base
            && let Some(gap) = self.sent.front().filter(|sent| sent.state == State::InFlight)
        {
            let loss = Loss { now, transmission: gap.transmission, next: self.next_transmission };
            self.congestion.on_loss(loss);
            self.begin_again();
        }
        true
    }

    /// Only the header of a packet has come: it is sent again, and nothing else counts as lost. False if that is impossible.
    pub fn handle_trimmed(&mut self, now: Time, packet: u32, transmission: u32) -> bool {
        if packet >= self.next_new() {
            return false;
        }
        let current = self.entry(packet).filter(|sent| sent.transmission as u32 == transmission);
        let Some(&Sent { transmission, state: State::InFlight, .. }) = current else { return true };
        self.lose(now, packet, transmission);
        true
    }

    /// A packet in flight counts as lost.
    fn lose(&mut self, now: Time, packet: u32, transmission: u64) {
        self.sent[(packet - self.base) as usize].state = State::Lost;
        self.in_flight -= 1;
        self.lost.push_back(packet);
        self.congestion.on_loss(Loss { now, transmission, next: self.next_transmission });
    }

    /// When the retransmission timer runs out.
    pub fn deadline(&self) -> Option<Time> {
        (!self.sent.is_empty()).then(|| self.timer_start + self.rtt.rto(1 + self.timeouts))
    }

    /// The retransmission timer has run out: all packets in flight count as lost.
    pub fn handle_timeout(&mut self, now: Time) {
        self.timeouts += 1;
        self.timer_start = now;
        self.congestion.on_timeout(now);
        self.entropies.timed_out(now);
        self.begin_again();
    }

    /// All packets that have not arrived are sent again.
    fn begin_again(&mut self) {
        self.order.clear();
        self.lost.clear();
        self.in_flight = 0;
        for (packet, sent) in (self.base..).zip(&mut self.sent) {
            if sent.state != State::Arrived {
                sent.state = State::Lost;
                self.lost.push_back(packet);
            }
        }
    }

    /// Advances beyond packets that have arrived, `fresh` of them just now.
    fn forget_arrived(&mut self, now: Time, fresh: u32) {
        while self.sent.front().is_some_and(|sent| sent.state == State::Arrived) {
            self.sent.pop_front();
            self.base += 1;
        }
        if fresh > 0 {
            self.timeouts = 0;
            self.timer_start = now;
        }
    }

    fn next_new(&self) -> u32 {
        self.base + self.sent.len() as u32
    }

    fn entry(&self, packet: u32) -> Option<&Sent> {
        self.sent.get(packet.checked_sub(self.base)? as usize)
    }

    fn is_lost(&self, packet: u32) -> bool {
        self.entry(packet).is_some_and(|sent| sent.state == State::Lost)
    }

    /// Notes that a packet has arrived; true if it was not known before.
    fn arrived(&mut self, packet: u32) -> bool {
        let entry = packet.checked_sub(self.base).and_then(|index| self.sent.get_mut(index as usize));
        let Some(sent) = entry else { return false };
        let before = std::mem::replace(&mut sent.state, State::Arrived);
        self.in_flight -= u32::from(before == State::InFlight);
        before != State::Arrived
    }

    /// Fast retransmit: packets that were sent well before a packet that has arrived count as lost.
    fn find_losses(&mut self, now: Time) {
        let Some(newest) = self.newest_arrived else { return };
        while let Some(&(transmission, packet)) = self.order.front() {
            let current = self.entry(packet).filter(|sent| sent.transmission == transmission);
            if current.is_some_and(|sent| sent.state == State::InFlight) {
                if transmission + self.reordering > newest {
                    return;
                }
                self.lose(now, packet, transmission);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
