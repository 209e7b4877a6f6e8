//! What a sending end does when acknowledgements stay away.

use super::{Sender, State};
use crate::congestion::Controller;
use crate::contract::time::Time;

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
