//! Swift (Kumar et al., SIGCOMM 2020): keeps the delay near a target. While round trips are shorter than the target,
//! the window grows by a packet in each; when they are longer, it is cut in proportion to the excess, once in a round
//! trip.
//!
//! Where we deviate:
//! - The target does not grow with the number of hops, which hosts here do not know: choose [`Settings::target_delay`]
//!   for
//!   the longest path. It is a constant and not a multiple of the shortest round trip, because a flow that comes later
//!   never sees the path without a queue, and would take a longer target for itself.
//! - The window is never below the sender's least one, as senders here do not pace below a packet per round trip
//!   (§3.4).
//! - There is one delay. The paper splits it into fabric and host by timestamps of network cards.
//!
//! Where results are the acknowledgements, a round trip includes the wait for the slowest rank.

use super::bookkeeping::Real;
use super::{Ack, Algorithm, Controller, Feedback, Loss, Settings};
use crate::contract::time::{Span, Time};

/// The algorithm as a value.
pub const ALGORITHM: Algorithm =
    Algorithm { name: "swift", feedback: Feedback::EndToEnd, make: |settings| Box::new(Swift::new(settings)) };

/// How strongly an excess of delay cuts: `beta` of Algorithm 1.
const BETA: f64 = 0.8;
/// The largest share that one cut takes: `max_mdf`.
const MAX_CUT: f64 = 0.5;
/// After this many timeouts in a row, the window is the least one: `RETX_RESET_THRESHOLD`.
const TIMEOUTS_TO_RESET: u32 = 5;

/// Flow scaling (§3.5): small windows get a target that is longer by up to this many times, because many flows share
/// their queue. Between these windows the addition falls with the root of the window.
const SCALING_RANGE: f64 = 5.0;
const SCALING_LEAST_WINDOW: f64 = 0.1;
const SCALING_MOST_WINDOW: f64 = 100.0;

/// The controller of one sender.
#[derive(Clone, Debug, Hash)]
pub struct Swift {
    settings: Settings,
    window: Real,
    /// The newest round trip.
    newest: Span,
    last_cut: Option<Time>,
    /// Timeouts in a row.
    timeouts: u32,
}

impl Swift {
    /// The controller of a sender that has sent nothing.
    pub fn new(settings: &Settings) -> Swift {
        Swift {
            settings: *settings,
            window: Real(settings.limits.initial.into()),
            newest: Span::ZERO,
            last_cut: None,
            timeouts: 0,
        }
    }

    /// The round trip to aim for, in seconds.
    fn target(&self) -> f64 {
        let root = |window: f64| 1.0 / window.sqrt();
        let (least, most) = (root(SCALING_LEAST_WINDOW), root(SCALING_MOST_WINDOW));
        let scaling = ((root(self.window.0) - most) / (least - most)).clamp(0.0, 1.0);
        self.settings.target_delay.as_secs_f64() * (1.0 + SCALING_RANGE * scaling)
    }

    /// One cut in a round trip: what was sent before it says nothing about the window after it.
    fn may_cut(&self, now: Time) -> bool {
        self.last_cut.is_none_or(|last| now.since(last) >= self.newest)
    }

    fn cut(&mut self, now: Time, share: f64) {
        let window = self.window.0 * (1.0 - share.min(MAX_CUT));
        self.window.0 = window.max(self.settings.limits.min.into());
        self.last_cut = Some(now);
    }
}

impl Controller for Swift {
    fn window(&self) -> u64 {
        self.window.0 as u64
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.timeouts = 0;
        let Some(rtt) = ack.rtt else { return };
        self.newest = rtt;
        let (delay, target) = (rtt.as_secs_f64(), self.target());
        if delay > target {
            if self.may_cut(ack.now) {
                self.cut(ack.now, BETA * (delay - target) / delay);
            }
        } else if ack.limited {
            let more = f64::from(self.settings.increase) * f64::from(ack.packets) / self.window.0;
            self.window.0 = (self.window.0 + more).min(self.settings.limits.max.into());
        }
    }

    fn on_loss(&mut self, loss: Loss) -> bool {
        let may_cut = self.may_cut(loss.now);
        if may_cut {
            self.cut(loss.now, MAX_CUT);
        }
        may_cut
    }

    fn on_timeout(&mut self, now: Time) {
        self.timeouts += 1;
        if self.timeouts >= TIMEOUTS_TO_RESET {
            self.window.0 = self.settings.limits.min.into();
        } else if self.may_cut(now) {
            self.cut(now, MAX_CUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::congestion::Limits;

    /// The path without a queue, and how long the link takes for a packet.
    const PATH: Span = Span::from_micros(50);
    const PACKET: Span = Span::from_micros(1);

    fn swift(initial: u32, target_delay: Span) -> Swift {
        let limits = Limits { initial, min: 1, max: 1000 };
        Swift::new(&Settings { target_delay, ..Settings::new(limits) })
    }

    struct Flow {
        controller: Swift,
        in_flight: u64,
        sent: u64,
        /// Packets that have arrived since the last call of [`Link::run`].
        arrived: u64,
    }

    /// One link and its queue. Each flow sends whenever its window allows it.
    struct Link {
        flows: Vec<Flow>,
        now: Time,
        free_at: Time,
        /// Acknowledgements under way: when they arrive, the flow, its packet, and when that was sent.
        acks: VecDeque<(Time, usize, u64, Time)>,
    }

    impl Link {
        fn new() -> Link {
            Link { flows: Vec::new(), now: Time::ZERO, free_at: Time::ZERO, acks: VecDeque::new() }
        }

        fn join(&mut self, controller: Swift) {
            self.flows.push(Flow { controller, in_flight: 0, sent: 0, arrived: 0 });
        }

        fn send(&mut self) {
            for (index, flow) in self.flows.iter_mut().enumerate() {
                while flow.in_flight < flow.controller.window() {
                    self.free_at = self.free_at.max(self.now) + PACKET;
                    self.acks.push_back((self.free_at + PATH, index, flow.sent, self.now));
                    (flow.in_flight, flow.sent) = (flow.in_flight + 1, flow.sent + 1);
                }
            }
        }

        /// Runs until this many packets have arrived; returns their mean round trip in microseconds.
        fn run(&mut self, packets: usize) -> f64 {
            self.flows.iter_mut().for_each(|flow| flow.arrived = 0);
            let mut sum = 0.0;
            for _ in 0..packets {
                self.send();
                let (at, index, newest, sent_at) = self.acks.pop_front().expect("every window has a packet");
                self.now = at;
                let flow = &mut self.flows[index];
                (flow.in_flight, flow.arrived) = (flow.in_flight - 1, flow.arrived + 1);
                let rtt = at.since(sent_at);
                sum += rtt.as_secs_f64() * 1e6;
                let (rtt, next) = (Some(rtt), flow.sent);
                flow.controller.on_ack(&Ack {
                    now: at,
                    rtt,
                    packets: 1,
                    newest,
                    next,
                    limited: true,
                    ..Ack::default()
                });
            }
            sum / packets as f64
        }
    }

    #[test]
    fn converges_to_the_target_delay_from_both_sides() {
        for initial in [2, 800] {
            for target in [70, 100, 150] {
                let mut link = Link::new();
                link.join(swift(initial, Span::from_micros(target)));
                link.run(100_000);
                let mean = link.run(20_000);
                let scaled = link.flows[0].controller.target() * 1e6;
                assert!((0.8..=1.05).contains(&(mean / scaled)), "{initial}, {target}: {mean} us of {scaled} us");
            }
        }
    }

    #[test]
    fn two_flows_share_a_link_whichever_began_first() {
        let mut link = Link::new();
        link.join(swift(10, Span::from_micros(100)));
        link.run(50_000);
        assert!(link.flows[0].controller.window() > 50, "the first flow fills the path");
        link.join(swift(10, Span::from_micros(100)));
        link.run(300_000);
        link.run(100_000);
        let (first, second) = (link.flows[0].arrived as f64, link.flows[1].arrived as f64);
        assert!((0.8..=1.25).contains(&(first / second)), "{first} and {second} packets");
    }

    #[test]
    fn cuts_once_in_a_round_trip_and_never_by_more_than_half() {
        let mut controller = swift(100, Span::from_micros(60));
        let ack = |now: Time, rtt: u64| Ack {
            now,
            rtt: Some(Span::from_micros(rtt)),
            packets: 1,
            limited: true,
            ..Ack::default()
        };
        let mut now = Time::ZERO;
        controller.on_ack(&ack(now, 50));
        now += Span::from_micros(1);
        controller.on_ack(&ack(now, 100_000));
        assert_eq!(controller.window(), 50);
        now += Span::from_micros(99_999);
        controller.on_ack(&ack(now, 100_000));
        assert_eq!(controller.window(), 50, "a round trip has not passed");
        assert!(!controller.on_loss(Loss { now, transmission: 7, next: 200 }), "the same queue lost the packet");
        now += Span::from_micros(1);
        assert!(controller.on_loss(Loss { now, transmission: 8, next: 200 }));
        assert_eq!(controller.window(), 25);
    }

    #[test]
    fn several_timeouts_in_a_row_leave_the_least_window() {
        let mut controller = swift(1000, Span::from_micros(60));
        for timeout in 1..=TIMEOUTS_TO_RESET {
            let before = controller.window();
            controller.on_timeout(Time::ZERO + Span::from_millis(u64::from(timeout)));
            assert_eq!(controller.window(), if timeout < TIMEOUTS_TO_RESET { before / 2 } else { 1 });
        }
    }
}
