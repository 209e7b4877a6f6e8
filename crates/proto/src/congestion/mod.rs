//! Congestion control: how much a sender may have under way. A new algorithm is one file here, and one line in
//! [`ALGORITHMS`]; then it can be chosen by name, in jobs and for the simulator's background flows. PANAMA has a list
//! of its own, in [`rank_synchronous`].
//!
//! | file | algorithm | who uses it by default |
//! |---|---|---|
//! | [`dctcp`] | additive increase, cuts in proportion to the share of marks (RFC 8257) | ring, SparCML, background flows |
//! | [`cubic`] | a cubic of the time since the last loss; marks are not read (RFC 9438) | nobody |
//! | [`aimd`] | additive increase, halved by marks and losses | ATP |
//! | [`progress_aware`] | DCTCP whose cuts depend on how far a rank is ahead | PA-ATP (its CWD) |
//! | [`lead_limit`] | not a [`Controller`]: how far a rank may be ahead of the last result | PA-ATP (its AWD) |
//! | [`rank_synchronous::result_clocked`] | a DCTCP that follows results alone, so that all ranks have the same window | PANAMA |
//! | [`measured`] | as much as the measured rate and round trip need | SwitchML, Flare, parameter servers |
//! | [`fixed`] | a constant window | the same in simulations: the whole pool |
//! | [`swift`] | keeps the delay near a target (Swift, SIGCOMM 2020) | nobody |
//! | [`dcqcn`], [`timely`], [`hpcc`] | set a rate: by marks, by changes of the delay, by what switches report | flows of the simulator only |
//!
//! A sender tells its [`Controller`] what happens to its packets, and the controller answers with a window and a pace.
//! It counts packets, not bytes, since each sender here sends packets of one size. Senders number their *transmissions*
//! in the order of sending, so that a packet that is sent twice has two numbers.
//!
//! A protocol whose ranks must all have the same window takes a [`RankSynchronous`] controller instead, whose inputs
//! have neither a clock nor a round trip.

pub(crate) mod aimd;
mod algorithms;
mod bookkeeping;
pub(crate) mod cubic;
pub mod dcqcn;
pub mod dctcp;
pub(crate) mod fixed;
pub mod hpcc;
pub(crate) mod lead_limit;
mod marking;
pub(crate) mod measured;
pub(crate) mod progress_aware;
pub(crate) mod rank_synchronous;
pub(crate) mod swift;
pub mod timely;
mod timing;

use std::fmt;

use self::aimd::HalveOn;
pub use self::algorithms::{ALGORITHMS, Algorithm, Feedback, NAMES, OF_RATES, OPTION, option};
pub use self::dctcp::Dctcp;
pub use self::fixed::Fixed;
pub use self::lead_limit::LeadLimit;
pub use self::marking::Marking;
pub use self::progress_aware::{CutRule, ProgressAware};
pub use self::rank_synchronous::result_clocked::ResultClocked;
pub use self::rank_synchronous::{RankSynchronous, ResultAck};
pub use self::swift::Swift;
pub(crate) use self::timing::Pacer;
pub use self::timing::RttEstimator;
use crate::contract::options::{Kind, OptionSpec};
use crate::contract::time::{Span, Time};

/// What a sender tells, and what it asks. All methods take constant time. Not every sender has everything to tell: a
/// controller must do without what its sender never calls.
///
/// | called by | ring and SparCML (`reliability/link`) | SwitchML, Flare, parameter servers (`aggregation/slots`) | ATP and PA-ATP (`aggregation/best_effort`) | flows of the simulator |
/// |---|---|---|---|---|
/// | [`on_ack`](Self::on_ack), [`on_loss`](Self::on_loss) | yes | yes; a result is the acknowledgement | yes | yes |
/// | [`on_timeout`](Self::on_timeout) | yes | no: each packet that timed out is a loss | yes | yes |
/// | [`on_spurious`](Self::on_spurious), [`on_loss_confirmed`](Self::on_loss_confirmed) | yes | no | yes | no |
/// | [`on_idle`](Self::on_idle) | yes | yes | no | no |
/// | [`on_limited`](Self::on_limited) | no | yes | no | no |
/// | [`on_late_mark`](Self::on_late_mark) | no | no | yes | no |
/// | [`pace_percent`](Self::pace_percent) | yes | no | no | no |
/// | [`rate`](Self::rate), [`on_telemetry`](Self::on_telemetry) | no | no | no | yes |
///
/// PANAMA tells a [`RankSynchronous`] controller instead.
pub trait Controller: ControllerState + fmt::Debug + Send {
    /// How many packets may be under way, rounded down.
    fn window(&self) -> u64;

    /// How fast the window may leave, in per cent of a window per round trip. Senders that pace should not be slower
    /// than acknowledgements come, so that the window and not the pace decides (Linux has the same numbers).
    fn pace_percent(&self) -> u64 {
        125
    }

    /// How fast packets may leave, in bits per second; `None` if the window alone decides.
    fn rate(&self) -> Option<f64> {
        None
    }

    /// What the switches on the path wrote into the packet whose acknowledgement follows ([`Feedback::Telemetry`]).
    fn on_telemetry(&mut self, _: &[HopRecord]) {}

    /// An acknowledgement has come, perhaps with marks.
    fn on_ack(&mut self, ack: &Ack);

    /// A packet that was acknowledged before turns out to have met a long queue, as the result says in protocols that
    /// acknowledge contributions.
    fn on_late_mark(&mut self) {}

    /// A packet that is ready has to wait for the window.
    fn on_limited(&mut self) {}

    /// Nothing is under way any more.
    fn on_idle(&mut self) {}

    /// A packet was lost. True if the window is cut for it; false if a cut has already answered losses of this window.
    fn on_loss(&mut self, loss: Loss) -> bool;

    /// Nothing was acknowledged for a retransmission timeout.
    fn on_timeout(&mut self, now: Time);

    /// A packet that was sent again is acknowledged, and the acknowledgement shows that the earlier transmission had
    /// not been lost but was late (the Eifel response, RFC 4015).
    fn on_spurious(&mut self) {}

    /// The same, and it shows that the earlier transmission had been lost indeed.
    fn on_loss_confirmed(&mut self) {}
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ack {
    /// When it came.
    pub now: Time,
    /// The round trip that it measures, if it measures one.
    pub rtt: Option<Span>,
    /// How many packets it acknowledges for the first time.
    pub packets: u32,
    /// How many packets it reports as marked for the first time.
    pub marked: u32,
    /// The newest transmission that is known to have arrived.
    pub newest: u64,
    /// The number of the next transmission.
    pub next: u64,
    /// The window, and not a lack of data, held the sender back. A window that is not used does not grow (RFC 7661).
    pub limited: bool,
    /// How far ranks are, in protocols that know.
    pub progress: Progress,
}

/// How far ranks are beyond the last result, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// This rank: the paper's `p_l` (PA-ATP, section III-B2).
    pub own: f64,
    /// All ranks on average: the paper's `p_avg`.
    pub average: f64,
    /// How far this rank may be: AWD.
    pub limit: f64,
}

/// A lost packet.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When the sender found out.
    pub now: Time,
    /// The packet's last transmission.
    pub transmission: u64,
    /// The number of the next transmission.
    pub next: u64,
}

/// The most switches on a path that write a [`HopRecord`]: those of a fat tree of three levels.
pub const MAX_HOPS: usize = 5;

/// What a switch writes into a packet that it sends on (in-band network telemetry).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HopRecord {
    /// The bytes that wait in the output queue.
    pub queued_bytes: u32,
    /// The bytes that the link has sent with this packet, modulo 2^32.
    pub sent_bytes: u32,
    /// When the packet has left.
    pub left_at: Time,
    /// The link's rate, in bits per second.
    pub rate: u64,
}

/// Bounds of a window, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The window at the start.
    pub initial: u32,
    /// The smallest window, also the window after a timeout.
    pub min: u32,
    /// The largest window.
    pub max: u32,
}

/// What a sender chooses about its controller. An algorithm reads what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Bounds of the window.
    pub limits: Limits,
    /// How many packets the window grows by in a round trip, once it no longer doubles.
    pub increase: u32,
    /// The length of a packet.
    pub packet_bytes: usize,
    /// The round trip that controllers aim for which measure delay.
    pub target_delay: Span,
    /// The rate of the sender's link, in bits per second.
    pub line_rate: u64,
    /// The longest round trip in the network without queues.
    pub base_rtt: Span,
    /// Which marks halve [`aimd`]'s window.
    pub halve_on: HalveOn,
    /// How [`progress_aware`] cuts.
    pub cut_rule: CutRule,
    /// [`progress_aware`] doubles after the first mark, too.
    pub always_doubles: bool,
    /// The share of marked packets, in thousandths, with which [`progress_aware`] begins: `alpha`.
    pub first_alpha_permille: u16,
}

impl Settings {
    /// One packet more in a round trip, packets of 1,500 bytes, and round trips as in a simulated data centre.
    pub const fn new(limits: Limits) -> Settings {
        Settings {
            limits,
            increase: 1,
            packet_bytes: 1500,
            target_delay: SIMULATED_TARGET_DELAY,
            line_rate: 100_000_000_000,
            base_rtt: Span::from_micros(10),
            halve_on: HalveOn::Any,
            cut_rule: CutRule::Plain,
            always_doubles: false,
            first_alpha_permille: 0,
        }
    }
}

/// The option for [`Settings::target_delay`].
pub const TARGET_DELAY: OptionSpec = OptionSpec {
    name: "target_delay",
    kind: Kind::Time { least: Span::from_nanos(100), most: Span::from_millis(10_000) },
    default: "2 ms",
    help: "the round trip that swift aims for, which must be longer than the path",
};

/// The round trip to aim for where links and switches are as fast as in the papers ...
pub const SIMULATED_TARGET_DELAY: Span = Span::from_micros(50);
/// ... also as the default of the option in simulations.
pub const SIMULATED: &[(&str, &str)] = &[(TARGET_DELAY.name, "50 us")];

/// Makes boxed controllers of a trait `Clone` and `Hash`, as the machines that have them must be. The trait requires
/// the other one, which every controller that is `Clone` and `Hash` implements.
macro_rules! boxed_controllers {
    ($controller:ident, $state:ident) => {
        /// Controllers can be copied and hashed, as the machines that have them.
        pub trait $state {
            /// A copy of the controller.
            fn fork(&self) -> Box<dyn $controller>;
            /// Feeds the state to a hasher.
            fn hash_state(&self, hasher: &mut dyn std::hash::Hasher);
        }

        impl<T: $controller + Clone + std::hash::Hash + 'static> $state for T {
            fn fork(&self) -> Box<dyn $controller> {
                Box::new(self.clone())
            }
            fn hash_state(&self, mut hasher: &mut dyn std::hash::Hasher) {
                self.hash(&mut hasher);
            }
        }

        impl Clone for Box<dyn $controller> {
            fn clone(&self) -> Box<dyn $controller> {
                // `fork` of the controller in the box: the box itself is not a controller.
                $state::fork(&**self)
            }
        }

        impl std::hash::Hash for dyn $controller {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.hash_state(state);
            }
        }
    };
}
pub(crate) use boxed_controllers;

boxed_controllers!(Controller, ControllerState);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { initial: 16, min: 2, max: 100 };

    #[test]
    fn every_algorithm_keeps_within_its_limits_whatever_comes() {
        for algorithm in ALGORITHMS.iter().chain(OF_RATES) {
            let mut controller = (algorithm.make)(&Settings::new(LIMITS));
            let mut now = Time::ZERO;
            for step in 0..20_000u64 {
                now += Span::from_micros(7);
                let ack = Ack {
                    now,
                    rtt: Some(Span::from_micros(50 + step % 1000)),
                    packets: 1,
                    marked: u32::from(step % 13 == 0),
                    newest: step,
                    next: step + controller.window(),
                    limited: true,
                    progress: Progress::default(),
                };
                match step % 101 {
                    7 => drop(controller.on_loss(Loss { now, transmission: step, next: ack.next })),
                    20 => controller.on_timeout(now),
                    30 => controller.on_spurious(),
                    40 => controller.on_late_mark(),
                    _ => controller.on_ack(&ack),
                }
                let rate = controller.rate().unwrap_or(1.0);
                assert!((1.0..=100e9).contains(&rate), "{algorithm:?}: {rate} bit/s");
                let window = controller.window();
                assert!((1..=u64::from(LIMITS.max)).contains(&window), "{algorithm:?}: {window} packets");
            }
        }
    }
}
