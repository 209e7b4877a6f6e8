//! HPCC (Li et al., SIGCOMM 2019): switches write their queue, the bytes that they have sent and the time into each data
//! packet, and the sender keeps the bytes in flight on the busiest link just below what the link holds without a queue.
//!
//! Where we deviate:
//! - `T`, the round trip without queues, is [`Settings::base_rtt`], one for all flows, as in the paper; a driver computes it.
//! - The queue is the one that a packet finds when it comes and not the one that it leaves behind: the simulator knows
//!   the latter too late. The smaller of two successive ones counts, as in the paper.

use super::bookkeeping::Real;
use super::{Ack, Algorithm, Controller, Feedback, HopRecord, Loss, MAX_HOPS, Settings};
use crate::contract::time::Time;

/// HPCC as a value.
pub const ALGORITHM: Algorithm =
    Algorithm { name: "hpcc", feedback: Feedback::Telemetry, make: |settings| Box::new(Hpcc::new(settings)) };

/// The utilisation to aim for: `eta` (§4.3).
pub const TARGET: f64 = 0.95;
/// After this many increases by steps, the window jumps to the target: `maxStage`.
const MAX_STAGE: u32 = 5;
/// The flows for which the sum of all steps is less than what the target leaves free: `N` of `W_AI`.
const FLOWS: f64 = 100.0;
/// The least rate, as a share of the link's.
const LEAST: f64 = 1e-3;

/// The controller of one sender.
#[derive(Clone, Debug, Hash)]
pub struct Hpcc {
    settings: Settings,
    /// The round trip without queues, in seconds: `T`.
    base: Real,
    /// Bytes that fill the path at the link's rate: `W_init`, which is also the largest window.
    most: Real,
    window: Real,
    /// The window at the last update, from which each acknowledgement starts: `W^c`.
    reference: Real,
    /// The bytes in flight over what the busiest link holds: `U`.
    in_flight: Real,
    stage: u32,
    /// The reference changes once all that was sent with the last one is acknowledged.
    update_after: u64,
    last: [HopRecord; MAX_HOPS],
    hops: usize,
    /// `in_flight` has changed since the last acknowledgement.
    has_news: bool,
}

impl Hpcc {
    /// The controller of a sender that has sent nothing: it begins at the link's rate.
    pub fn new(settings: &Settings) -> Hpcc {
        let base = settings.base_rtt.as_secs_f64();
        let most = Real(settings.line_rate as f64 / 8.0 * base);
        Hpcc {
            settings: *settings,
            base: Real(base),
            most,
            window: most,
            reference: most,
            in_flight: Real(1.0),
            stage: 0,
            update_after: 0,
            last: [HopRecord::default(); MAX_HOPS],
            hops: 0,
            has_news: false,
        }
    }

    /// The busiest link's bytes in flight, and the time that the measurement covers: lines 3 to 9 of Algorithm 1. `None` if
    /// the records are not later than the last ones.
    fn busiest(&self, records: &[HopRecord]) -> Option<(f64, f64)> {
        let mut busiest = (0.0, 0.0);
        for (record, last) in records.iter().zip(&self.last) {
            if record.left_at <= last.left_at {
                return None;
            }
            let elapsed = record.left_at.since(last.left_at).as_secs_f64();
            let rate = record.rate as f64 / 8.0;
            let sent = f64::from(record.sent_bytes.wrapping_sub(last.sent_bytes)) / elapsed;
            let queued = f64::from(record.queued_bytes.min(last.queued_bytes));
            let in_flight = queued / (rate * self.base.0) + sent / rate;
            if in_flight > busiest.0 {
                busiest = (in_flight, elapsed.min(self.base.0));
            }
        }
        Some(busiest)
    }

    /// `ComputeWind` of Algorithm 1.
    fn set_window(&mut self, is_update: bool) {
        let step = self.most.0 * (1.0 - TARGET) / FLOWS;
        let jumps = self.in_flight.0 >= TARGET || self.stage >= MAX_STAGE;
        let window = if jumps { self.reference.0 * TARGET / self.in_flight.0 } else { self.reference.0 };
        self.window.0 = (window + step).clamp(self.most.0 * LEAST, self.most.0);
        if is_update {
            self.stage = if jumps { 0 } else { self.stage + 1 };
            self.reference = self.window;
        }
    }
}

impl Controller for Hpcc {
    fn window(&self) -> u64 {
        let packets = (self.window.0 / self.settings.packet_bytes as f64).ceil() as u64;
        packets.clamp(1, self.settings.limits.max.into())
    }

    fn rate(&self) -> Option<f64> {
        Some(self.window.0 * 8.0 / self.base.0)
    }

    fn on_telemetry(&mut self, records: &[HopRecord]) {
        let records = &records[..records.len().min(MAX_HOPS)];
        // Another path has other counts.
        let measured = if records.len() == self.hops { self.busiest(records) } else { None };
        if let Some((in_flight, elapsed)) = measured {
            let weight = elapsed / self.base.0;
            self.in_flight.0 = (1.0 - weight) * self.in_flight.0 + weight * in_flight;
            self.has_news = true;
        }
        self.hops = records.len();
        self.last[..self.hops].copy_from_slice(records);
    }

    fn on_ack(&mut self, ack: &Ack) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let is_update = ack.newest >= self.update_after;
        self.set_window(is_update);
        if is_update {
            self.update_after = ack.next;
        }
    }

    /// Losses are for the recovery alone.
    fn on_loss(&mut self, _: Loss) -> bool {
        false
    }

    fn on_timeout(&mut self, _: Time) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Limits;
    use crate::contract::time::Span;

    const LINE: u64 = 100_000_000_000;
    const BASE: Span = Span::from_micros(10);
    /// What fills the path: 100 Gbit/s x 10 us.
    const PATH: f64 = 125_000.0;

    fn hpcc() -> Hpcc {
        let limits = Limits { initial: 10, min: 1, max: 1000 };
        Hpcc::new(&Settings { line_rate: LINE, base_rtt: BASE, ..Settings::new(limits) })
    }

    /// What a hop writes that has sent this share of its rate since the beginning, with this much of a path queued.
    fn record(micros: u64, share: f64, queued: f64) -> HopRecord {
        let sent = (share * LINE as f64 / 8.0 * micros as f64 * 1e-6) as u32;
        let left_at = Time::ZERO + Span::from_micros(micros);
        HopRecord { queued_bytes: (queued * PATH) as u32, sent_bytes: sent, left_at, rate: LINE }
    }

    fn ack(sender: &mut Hpcc, records: &[HopRecord], newest: u64, next: u64) -> f64 {
        sender.on_telemetry(records);
        sender.on_ack(&Ack { packets: 1, newest, next, ..Ack::default() });
        sender.window.0
    }

    #[test]
    fn the_window_is_divided_by_what_is_in_flight_on_the_busiest_link() {
        // A full link with half a path of queue has 1.5 of its path in flight; a link that is half used does not count.
        let mut sender = hpcc();
        let first = ack(&mut sender, &[record(10, 1.0, 0.5), record(10, 0.5, 0.0)], 0, 10);
        assert_eq!(first, sender.most.0, "one record tells no rate");
        let window = ack(&mut sender, &[record(20, 1.0, 0.5), record(20, 0.5, 0.0)], 1, 10);
        let step = PATH * 0.05 / FLOWS;
        assert!((window - (PATH * TARGET / 1.5 + step)).abs() < 1.0, "{window}");
        assert!((sender.rate().unwrap() - window * 8.0 / 10e-6).abs() < 1.0);
    }

    #[test]
    fn acknowledgements_of_one_round_trip_do_not_cut_twice() {
        let mut sender = hpcc();
        ack(&mut sender, &[record(10, 1.0, 0.5)], 0, 10);
        let first = ack(&mut sender, &[record(20, 1.0, 0.5)], 1, 10);
        let second = ack(&mut sender, &[record(30, 1.0, 0.5)], 9, 10);
        assert!((second - (first * TARGET / 1.5)).abs() < PATH * 0.01, "from the reference of transmission 1");
        let third = ack(&mut sender, &[record(40, 1.0, 0.5)], 9, 10);
        assert!((third - second).abs() < 1.0, "{third} and {second}: transmission 10 is not acknowledged yet");
    }

    #[test]
    fn an_idle_link_is_filled_by_steps_and_then_at_once() {
        let mut sender = hpcc();
        (sender.window.0, sender.reference.0) = (PATH / 10.0, PATH / 10.0);
        let step = PATH * 0.05 / FLOWS;
        let windows: Vec<f64> = (1..=8).map(|n| ack(&mut sender, &[record(10 * n, 0.1, 0.0)], n, n + 1)).collect();
        for n in 1..=5 {
            assert!((windows[n] - (PATH / 10.0 + step * n as f64)).abs() < 1.0, "{n}: {windows:?}");
        }
        assert!(windows[6] > PATH * 0.9, "a tenth of the rate is used, so that ten times the window fits: {windows:?}");
    }

    #[test]
    fn records_of_another_path_start_over() {
        let mut sender = hpcc();
        ack(&mut sender, &[record(10, 1.0, 0.5)], 0, 10);
        let longer = [record(20, 1.0, 0.5), record(20, 1.0, 0.5)];
        assert_eq!(ack(&mut sender, &longer, 1, 10), sender.most.0);
        assert_eq!(ack(&mut sender, &longer, 2, 10), sender.most.0, "nor do old ones count");
    }
}
