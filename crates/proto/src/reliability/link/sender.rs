//! The sending end: which packets are on their way, which were lost, and how many the window allows.
//!
//! Transmissions are numbered in the order of sending, apart from the sequence numbers of packets: a packet that is
//! sent again has a new transmission number. An acknowledgement echoes the packet *and the attempt* that caused it, so
//! that round trips and losses are unambiguous also for packets that were sent again (compare RFC 8985, RACK).

mod acknowledgements;

use std::collections::VecDeque;

use super::Numbers;
use super::receiver::PACKETS_PER_ACK;
use super::wire::{MAX_ATTEMPT, SeqSet, WINDOW};
use crate::congestion::{Algorithm, Controller, Limits, Pacer, RttEstimator, Settings, TARGET_DELAY};
use crate::contract::config::{JobConfig, TimerConfig};
use crate::contract::time::{Span, Time};

/// A transmission is lost when a transmission that was sent this many later, times the patience, has arrived.
const LATER_ARRIVALS: u64 = 3;
/// How often in a window the receiver is asked to acknowledge; it is asked at least once in `PACKETS_PER_ACK` packets.
const ACKS_PER_WINDOW: usize = 4;

/// A window leaves in this many bursts. The next two are the bounds of a burst in packets.
const BURSTS_PER_WINDOW: u64 = 4;
const LEAST_BURST: u64 = 4;
const MOST_BURST: u64 = 32;

/// The window is never so small that later arrivals could not show a lost packet.
pub(super) const LIMITS: Limits = Limits { initial: 16, min: 1 + LATER_ARRIVALS as u32, max: WINDOW as u32 };

/// The controller that a job's members have chosen, for one of their links.
pub fn controller(job: &JobConfig) -> Box<dyn Controller> {
    let (packet_bytes, target_delay) = (job.payload_bytes().max(1), job.options.time(TARGET_DELAY.name));
    (Algorithm::chosen(&job.options).make)(&Settings { packet_bytes, target_delay, ..Settings::new(LIMITS) })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    OnItsWay,
    Lost,
    /// The packet was acknowledged, or is not needed any more.
    Over,
}

/// A packet that was sent.
#[derive(Clone, Debug, Hash)]
struct Sent<I> {
    /// What the packet carries.
    item: I,
    transmission: u64,
    sent_at: Time,
    /// When the packet was first sent, with the attempt 1.
    first_sent_at: Time,
    attempt: u8,
    state: State,
}

/// The link's sending end; `I` is what a packet carries.
#[derive(Clone, Debug, Hash)]
pub struct Sender<I> {
    /// The lowest packet that is not over: that of `sent[0]`.
    base: u64,
    sent: VecDeque<Sent<I>>,
    /// Packets above `base` that the receiver has acknowledged.
    acknowledged: SeqSet,
    /// Transmission and packet, oldest first. An entry is obsolete once its packet was sent again or is over.
    order: VecDeque<(u64, u64)>,
    /// Packets to send again, in the order of their loss. An entry is obsolete once its packet is over.
    lost: VecDeque<u64>,
    on_its_way: usize,
    next_transmission: u64,
    newest_arrived: Option<(u64, Time)>,
    /// How much later a transmission may be and still overtake an earlier one: a factor.
    patience: u64,
    /// Packets since the receiver was last asked to acknowledge.
    unasked: usize,
    /// The first packet for which the receiver has no place.
    limit: u64,
    marks: u16,
    congestion: Box<dyn Controller>,
    rtt: RttEstimator,
    pacer: Pacer,
    /// Timeouts since the last progress.
    timeouts: u32,
    /// The time from which the timeout counts.
    timer_start: Time,
    /// An acknowledgement came since the last timeout.
    acked_since_timeout: bool,
    /// One packet may be sent whatever the windows allow, so that the receiver answers.
    probe: bool,
}

impl<I> Sender<I> {
    /// A link that has carried nothing, with the controller that decides how many packets are on their way.
    pub fn new(timers: TimerConfig, congestion: Box<dyn Controller>) -> Sender<I> {
        Sender {
            base: 0,
            sent: VecDeque::new(),
            acknowledged: SeqSet::default(),
            order: VecDeque::new(),
            lost: VecDeque::new(),
            on_its_way: 0,
            next_transmission: 0,
            newest_arrived: None,
            patience: 1,
            unasked: 0,
            limit: WINDOW,
            marks: 0,
            congestion,
            rtt: RttEstimator::new(timers),
            pacer: Pacer::default(),
            timeouts: 0,
            timer_start: Time::ZERO,
            acked_since_timeout: false,
            probe: false,
        }
    }

    fn next_seq(&self) -> u64 {
        self.base + self.sent.len() as u64
    }

    fn window_is_open(&self) -> bool {
        self.probe || (self.on_its_way as u64) < self.congestion.window()
    }

    /// True if a lost packet waits to be sent again.
    fn has_lost(&mut self) -> bool {
        while self.lost.front().is_some_and(|&seq| self.entry(seq).is_none_or(|sent| sent.state != State::Lost)) {
            self.lost.pop_front();
        }
        !self.lost.is_empty()
    }

    /// True if a lost packet waits to be sent again and may be sent now.
    pub fn may_resend(&mut self, now: Time) -> bool {
        self.has_lost() && self.window_is_open() && self.pacer.is_open(now)
    }

    /// True if a new packet may be sent.
    pub fn may_send(&self, now: Time) -> bool {
        self.fits_receive_window() && self.window_is_open() && self.pacer.is_open(now)
    }

    /// True if the receiver has a place for one more new packet.
    fn fits_receive_window(&self) -> bool {
        let is_in_limit = self.next_seq() < self.limit || self.probe && self.on_its_way == 0;
        is_in_limit && (self.sent.len() as u64) < WINDOW
    }

    /// Sends the next lost packet once more; call it only after [`Sender::may_resend`].
    pub fn resend(&mut self, now: Time) -> Option<(Numbers, &I)> {
        let seq = self.lost.pop_front()?;
        self.count_transmission(now, seq);
        let sent = self.sent.get_mut((seq - self.base) as usize)?;
        sent.transmission = self.next_transmission - 1;
        sent.sent_at = now;
        sent.attempt = sent.attempt % MAX_ATTEMPT + 1;
        if sent.attempt == 1 {
            sent.first_sent_at = now;
        }
        sent.state = State::OnItsWay;
        Some((Numbers { seq: seq as u32, attempt: sent.attempt, ack_now: true }, &sent.item))
    }

    /// Sends a new packet; call it only after [`Sender::may_send`]. `more`: another packet waits.
    pub fn send(&mut self, now: Time, item: I, more: bool) -> Numbers {
        let seq = self.next_seq();
        self.count_transmission(now, seq);
        let transmission = self.next_transmission - 1;
        self.sent.push_back(Sent {
            item,
            transmission,
            sent_at: now,
            first_sent_at: now,
            attempt: 1,
            state: State::OnItsWay,
        });
        self.unasked += 1;
        let enough = (self.congestion.window() as usize / ACKS_PER_WINDOW).clamp(1, PACKETS_PER_ACK as usize);
        // A full window has several times `enough` packets, so one of them asks for an acknowledgement.
        let ack_now = self.unasked >= enough || !more;
        if ack_now {
            self.unasked = 0;
        }
        Numbers { seq: seq as u32, attempt: 1, ack_now }
    }

    fn count_transmission(&mut self, now: Time, seq: u64) {
        if self.on_its_way == 0 {
            self.timer_start = now;
        }
        if let Some(rtt) = self.rtt.smoothed() {
            let (window, pace) = (self.congestion.window(), self.congestion.pace_percent());
            let burst = (window / BURSTS_PER_WINDOW).clamp(LEAST_BURST, MOST_BURST);
            self.pacer.on_sent(now, Span(rtt.0 * 100 / (window * pace)), burst as u32);
        }
        self.order.push_back((self.next_transmission, seq));
        self.next_transmission += 1;
        self.on_its_way += 1;
        self.probe = false;
    }

    fn entry(&self, seq: u64) -> Option<&Sent<I>> {
        self.sent.get(seq.checked_sub(self.base)? as usize)
    }

    fn advance(&mut self) {
        let old = self.base;
        while self.sent.front().is_some_and(|sent| sent.state == State::Over) {
            self.sent.pop_front();
            self.base += 1;
        }
        self.acknowledged.rise(old, self.base);
    }

    fn lose(&mut self, seq: u64) {
        self.sent[(seq - self.base) as usize].state = State::Lost;
        self.on_its_way -= 1;
        self.lost.push_back(seq);
    }

    /// The items that are not over, oldest first.
    pub fn unacknowledged(&mut self) -> impl Iterator<Item = &mut I> {
        self.sent.iter_mut().filter(|sent| sent.state != State::Over).map(|sent| &mut sent.item)
    }

    /// True if all packets that were sent are over.
    pub fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    /// Forgets items that are not needed any more.
    pub fn forget(&mut self, which: impl Fn(&I) -> bool) {
        for sent in self.sent.iter_mut().filter(|sent| which(&sent.item)) {
            self.on_its_way -= usize::from(sent.state == State::OnItsWay);
            sent.state = State::Over;
        }
        self.advance();
    }
}

#[cfg(test)]
mod tests;
