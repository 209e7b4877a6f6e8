//! What a sending end learns from acknowledgements: what has arrived, and what must be lost, as later packets overtook
//! it.

use super::super::wire::{Ack, WINDOW, expand};
use super::{LATER_ARRIVALS, Sender, State};
use crate::congestion::Ack as Acked;
use crate::congestion::{Loss, Progress};
use crate::contract::drop_reason::DropReason;
use crate::contract::time::{Span, Time};

/// The largest patience. It doubles with each packet that was taken for lost and arrives late.
const MAX_PATIENCE: u64 = 16;

impl<I> Sender<I> {
    /// Takes in an acknowledgement; calls `arrived` for each item that has arrived.
    pub fn handle_ack(
        &mut self,
        now: Time,
        ack: &Ack,
        words: &[u64],
        mut arrived: impl FnMut(&mut I),
    ) -> Result<(), DropReason> {
        let cum = expand(self.base, ack.cum).ok_or(DropReason::Stale)?;
        let limit = expand(cum, ack.limit).ok_or(DropReason::BadField)?;
        if cum > self.next_seq() || limit > cum + WINDOW {
            return Err(DropReason::BadField);
        }
        self.limit = self.limit.max(limit);
        self.acked_since_timeout = true;
        let full = self.on_its_way as u64 + LATER_ARRIVALS >= self.congestion.window();
        let limited = full || !self.pacer.is_open(now);
        let rtt = self.handle_echo(now, ack);
        let mut fresh = 0;
        for seq in self.base..cum {
            fresh += u32::from(self.acknowledge(seq, &mut arrived));
        }
        for (index, &word) in words.iter().enumerate() {
            let first = cum / 64 * 64 + 64 * index as u64;
            if first >= self.next_seq() {
                break;
            }
            let mut news = word & !self.acknowledged.word(first);
            while news != 0 {
                let seq = first + u64::from(news.trailing_zeros());
                news &= news - 1;
                fresh += u32::from(self.acknowledge(seq, &mut arrived));
            }
        }
        self.advance();
        if fresh > 0 {
            self.timeouts = 0;
            self.timer_start = now;
        }
        let marked = u32::from(ack.marks.wrapping_sub(self.marks)).min(fresh);
        self.marks = ack.marks;
        if fresh > 0 {
            let newest = self.newest_arrived.map_or(0, |(transmission, _)| transmission);
            let next = self.next_transmission;
            let progress = Progress::default();
            self.congestion.on_ack(&Acked { now, packets: fresh, marked, newest, next, rtt, limited, progress });
            if self.on_its_way == 0 {
                self.congestion.on_idle();
            }
        }
        self.find_losses(now);
        Ok(())
    }

    /// Looks at the transmission that caused the acknowledgement; returns its round trip if it was the packet's first
    /// or last transmission.
    fn handle_echo(&mut self, now: Time, ack: &Ack) -> Option<Span> {
        let seq = expand(self.base, ack.echo_seq)?;
        if ack.echo_attempt == 0 {
            return None;
        }
        let sent = self.entry(seq)?;
        let (transmission, sent_at, first_sent_at) = (sent.transmission, sent.sent_at, sent.first_sent_at);
        let (last, sent_again) = (sent.attempt == ack.echo_attempt, sent.attempt > 1);
        if !last || sent.state == State::Lost {
            // A transmission that was taken for lost has arrived after all: the path reorders.
            self.patience = (2 * self.patience).min(MAX_PATIENCE);
        }
        if sent_again {
            match last {
                true => self.congestion.on_loss_confirmed(),
                false => self.congestion.on_spurious(),
            }
        }
        if last {
            self.note_arrival(transmission, sent_at);
        } else if ack.echo_attempt != 1 {
            return None;
        }
        // A path with a round trip longer than the first timeout is measured by packets that were sent again too early.
        let rtt = now.since(if last { sent_at } else { first_sent_at });
        self.rtt.sample(rtt);
        Some(rtt)
    }

    fn note_arrival(&mut self, transmission: u64, sent_at: Time) {
        if self.newest_arrived.is_none_or(|(newest, _)| newest < transmission) {
            self.newest_arrived = Some((transmission, sent_at));
        }
    }

    /// True if the packet was not known to have arrived.
    fn acknowledge(&mut self, seq: u64, arrived: &mut impl FnMut(&mut I)) -> bool {
        let Some(sent) = seq.checked_sub(self.base).and_then(|index| self.sent.get_mut(index as usize)) else {
            return false;
        };
        let before = std::mem::replace(&mut sent.state, State::Over);
        if !self.acknowledged.insert(seq) {
            return false;
        }
        self.on_its_way -= usize::from(before == State::OnItsWay);
        if before == State::Over {
            return false;
        }
        arrived(&mut sent.item);
        let (transmission, sent_at, attempt) = (sent.transmission, sent.sent_at, sent.attempt);
        if attempt == 1 {
            self.note_arrival(transmission, sent_at);
        }
        true
    }

    /// Finds lost packets: those sent this many transmissions, or a round trip, before a transmission that has arrived.
    fn find_losses(&mut self, now: Time) {
        let Some((newest, newest_sent_at)) = self.newest_arrived else { return };
        while let Some(&(transmission, seq)) = self.order.front() {
            let current = self.entry(seq).filter(|sent| sent.transmission == transmission);
            if let Some(sent) = current.filter(|sent| sent.state == State::OnItsWay) {
                let overtaken = transmission + LATER_ARRIVALS * self.patience <= newest;
                let gap = newest_sent_at.since(sent.sent_at);
                let long_before = self.rtt.smoothed().is_some_and(|rtt| gap > rtt.times(self.patience));
                if !overtaken && !long_before {
                    return;
                }
                self.lose(seq);
                // The first packet in a series of losses is sent at once, though the window has just been cut.
                self.probe |= self.congestion.on_loss(Loss { now, transmission, next: self.next_transmission });
            }
            self.order.pop_front();
        }
    }
}

impl<I> Sender<I> {
    /// When the pace lets more packets go, or the receiver has been silent for too long. `more`: a packet waits to be
    /// sent.
    pub fn poll_timeout(&self, more: bool) -> Option<Time> {
        let paced = self.window_is_open() && (!self.lost.is_empty() || more && self.fits_receive_window());
        let paced = paced.then(|| self.pacer.due());
        [self.retransmission_timeout(more), paced].into_iter().flatten().min()
    }

    fn retransmission_timeout(&self, more: bool) -> Option<Time> {
        let waits = self.on_its_way > 0 || more && !self.probe && self.next_seq() >= self.limit;
        waits.then(|| self.timer_start + self.rtt.rto(self.timeouts + 1))
    }

    /// Acts on a timeout, if it has come. The first timeout only probes, with a packet that waits or else with the
    /// oldest; the second gives up all packets on their way. Items that are `spent` are forgotten.
    pub fn handle_timeout(&mut self, now: Time, more: bool, spent: impl Fn(&I) -> bool) {
        if self.retransmission_timeout(more).is_none_or(|due| due > now) {
            return;
        }
        self.timeouts += 1;
        self.timer_start = now;
        self.probe = true;
        // Where nothing was lost, a packet that has to be sent anyway costs nothing.
        let waits = self.has_lost() || more && self.fits_receive_window();
        let mut given_up = match self.timeouts {
            1 => usize::from(!waits),
            _ => self.on_its_way,
        };
        while given_up > 0
            && let Some((transmission, seq)) = self.order.pop_front()
        {
            let current = self.entry(seq).filter(|sent| sent.transmission == transmission);
            if current.is_some_and(|sent| sent.state == State::OnItsWay) {
                self.lose(seq);
                given_up -= 1;
            }
        }
        self.forget(spent);
        let acked_since_timeout = std::mem::take(&mut self.acked_since_timeout);
        if self.timeouts > 1 && !acked_since_timeout {
            self.congestion.on_timeout(now);
        }
    }

    /// Timeouts in a row, without progress between them.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }
}
