//! How many of its blocks a host has under way: as many as the path needs, measured while the job runs.
//!
//! SwitchML sends a whole pool at once, and a person chooses the pool for the link (appendix C: the bandwidth-delay
//! product). A pool that is right for 10 Gbit/s stands in queues for 60 ms at 0.1 Gbit/s. That is longer than any timer
//! expects at first, and it delays the packets of others. So a host begins with a few blocks and doubles them each
//! round trip as long as that makes sums come faster. Then it keeps what twice the round trip needs, or a short queue.
//!
//! Blocks that must wait go in their order, and the oldest block without a result never waits. Each rank measures for
//! itself. So the oldest block of the rank that is behind is under way at every rank that has not got its result, and
//! no two ranks wait for each other.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use crate::contract::config::JobConfig;
use crate::contract::options::{Kind, OptionSpec, Options};
use crate::contract::time::{Span, Time};

/// Bytes with which a host begins, and the least that it has under way. They are two runs of segments, one on each way.
const LEAST_BYTES: usize = 96_000;
/// A queue of this time is useful, because threads and timers of ordinary hosts are late by no more than this ...
const QUEUE: Span = Span::from_millis(4);
/// ... and a queue of this many bytes is enough on any link. Packets of a longer one fall out of caches before they are
/// summed.
const QUEUE_BYTES: usize = 750_000;
/// The number of rounds of which the fastest counts. A rank that was late in one round says nothing about the network.
const ROUNDS: usize = 8;

/// How many blocks hosts have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendWindow {
    /// As many as the path needs. The host measures that.
    Measured,
    /// The whole pool, as in the paper.
    Pool,
}

impl SendWindow {
    /// The option of protocols with slots.
    pub const OPTION: OptionSpec = OptionSpec {
        name: "window",
        kind: Kind::Choice(&["measured", "pool"]),
        default: "measured",
        help: "a host has as many blocks under way as it measures that the path needs, or the whole pool as in the paper",
    };
    /// Simulations use pools that are chosen for their links, as in the paper.
    pub const SIMULATED: (&str, &str) = (SendWindow::OPTION.name, "pool");

    /// What was chosen.
    pub fn chosen(options: &Options) -> SendWindow {
        match options.choice(SendWindow::OPTION.name) {
            "pool" => SendWindow::Pool,
            _ => SendWindow::Measured,
        }
    }
}

/// The answers of one round, and the time that the fastest of them took.
#[derive(Clone, Default, Hash)]
struct Round {
    /// The first answer after a pause, or the last one of the round before; `None` while nothing is under way.
    began: Option<Time>,
    answers: u32,
    shortest: Option<Span>,
    /// True if blocks had to wait: then the window and not the lack of data held the sender back.
    was_limited: bool,
}

/// The window of one host.
#[derive(Clone)]
pub struct Window {
    /// Blocks that may be under way.
    blocks: u32,
    least: u32,
    most: u32,
    /// The number of blocks in [`QUEUE_BYTES`].
    queue: u32,
    under_way: u32,
    /// The blocks that wait.
    waiting: BTreeSet<u64>,
    /// The oldest block without a result.
    oldest: u64,
    round: Round,
    /// Blocks a second in each of the last rounds.
    rates: [f64; ROUNDS],
    rounds: usize,
    /// The shortest time to an answer since the window was last at its least.
    round_trip: Option<Span>,
}

/// The hash does not have the rates. They come from measured times, and explorers look at times only as [`Span`]s.
impl Hash for Window {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Window { blocks, least, most, queue, under_way, waiting, oldest, round, rounds, round_trip, rates: _ } =
            self;
        (blocks, least, most, queue, under_way, waiting, oldest, round, rounds, round_trip).hash(state);
    }
}

impl Window {
    /// The window of a job whose packets have headers of so many bytes.
    pub fn new(job: &JobConfig, header_len: usize) -> Window {
        let packet = header_len + job.payload_bytes();
        let most = u32::from(job.slots);
        let least = (LEAST_BYTES.div_ceil(packet) as u32).clamp(1, most);
        Window {
            blocks: least,
            least,
            most,
            queue: (QUEUE_BYTES.div_ceil(packet) as u32).max(least),
            under_way: 0,
            waiting: BTreeSet::new(),
            oldest: 0,
            round: Round::default(),
            rates: [0.0; ROUNDS],
            rounds: 0,
            round_trip: None,
        }
    }

    /// Blocks that may be under way now.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Begins a block that is ready to be sent. False if it must wait until [`Window::release`] names it.
    pub fn begin(&mut self, block: u64) -> bool {
        if block == self.oldest || (self.waiting.is_empty() && self.under_way < self.blocks) {
            self.under_way += 1;
            return true;
        }
        self.waiting.insert(block);
        self.round.was_limited = true;
        false
    }

    /// The next block that no longer needs to wait.
    pub fn release(&mut self) -> Option<u64> {
        let first = *self.waiting.first()?;
        if self.under_way >= self.blocks && first != self.oldest {
            return None;
        }
        self.under_way += 1;
        self.waiting.pop_first()
    }

    /// Notes that a block is no longer under way: it has its answer, or it was lost.
    pub fn ended(&mut self) {
        self.under_way -= 1;
        if self.under_way == 0 {
            self.round = Round::default();
        }
    }

    /// Moves on to the oldest block that has no result.
    pub fn advance(&mut self, has_result: impl Fn(u64) -> bool) {
        while has_result(self.oldest) {
            self.oldest += 1;
        }
    }

    /// Notes an answer. `took` is the time since its packet was sent, if the packet was sent only once.
    pub fn answered(&mut self, now: Time, took: Option<Span>) {
        let round = &mut self.round;
        round.shortest = round.shortest.into_iter().chain(took).min();
        let Some(began) = round.began else {
            round.began = Some(now);
            return;
        };
        round.answers += 1;
        let elapsed = now.since(began);
        // Answers come in runs, so a rate over less than a round trip means nothing.
        if round.answers < self.blocks || round.shortest.is_none_or(|shortest| elapsed < shortest) {
            return;
        }
        let ended = std::mem::replace(&mut self.round, Round { began: Some(now), ..Round::default() });
        self.round.was_limited = !self.waiting.is_empty();
        self.end_round(&ended, elapsed);
    }

    fn end_round(&mut self, round: &Round, elapsed: Span) {
        let rate = f64::from(round.answers) / elapsed.as_secs_f64().max(1e-9);
        let fastest = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        // A round that was slow for lack of data does not count (RFC 7661).
        if round.was_limited || rate > fastest(&self.rates) {
            self.rates[self.rounds % ROUNDS] = rate;
            self.rounds += 1;
        }
        // With more than the least under way, a longer round trip may come from this host's own queue.
        let known = self.round_trip.filter(|_| self.blocks > self.least);
        self.round_trip = known.into_iter().chain(round.shortest).min();
        let rate = fastest(&self.rates);
        let in_two = |trip: Span| rate * 2.0 * trip.as_secs_f64();
        let queue = (rate * QUEUE.as_secs_f64()).min(f64::from(self.queue));
        let wanted = self.round_trip.map_or(0.0, in_two).max(queue) as u32;
        self.blocks = wanted.min(2 * self.blocks).clamp(self.least, self.most);
    }

    /// Nothing is under way any more, and nothing waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.under_way = 0;
        self.round = Round::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ids::{JobId, JobKey};

    /// A window for 1,000 slots of packets of 1,500 bytes. Its least is 64 blocks, and a queue has 500.
    fn window() -> Window {
        let job = JobConfig {
            job: JobId(1),
            key: JobKey(1),
            protocol: 1,
            world: 2,
            slots: 1000,
            elements_per_packet: 367,
            trees: 1,
            levels: false,
            options: Options::default(),
        };
        Window::new(&job, 32)
    }

    /// A path that answers after `trip`, or later if it gets more than `rate` packets a second.
    fn send(window: &mut Window, start: Time, packets: u64, trip: Span, rate: u64) -> Time {
        let mut under_way = std::collections::VecDeque::new();
        let (mut now, mut free_at) = (start, start);
        for block in window.oldest..window.oldest + packets {
            if window.begin(block) {
                free_at = free_at.max(now) + Span(1_000_000_000_000 / rate);
                under_way.push_back((block, now, free_at + trip));
            }
        }
        while let Some((block, sent_at, answer_at)) = under_way.pop_front() {
            now = answer_at;
            window.answered(now, Some(now.since(sent_at)));
            window.ended();
            window.advance(|oldest| oldest == block);
            while let Some(next) = window.release() {
                free_at = free_at.max(now) + Span(1_000_000_000_000 / rate);
                under_way.push_back((next, now, free_at + trip));
            }
        }
        now
    }

    #[test]
    fn begins_with_little_and_has_a_short_queue_at_most_on_short_paths() {
        let mut window = window();
        assert_eq!(window.blocks(), 64);
        let now = send(&mut window, Time::ZERO, 10_000, Span::from_micros(50), 1_000_000);
        assert_eq!(window.blocks(), 500, "750 kB on a fast link");
        let now = send(&mut window, now, 10_000, Span::from_micros(50), 80_000);
        assert!((300..=340).contains(&window.blocks()), "4 ms of 1 Gbit/s, not {}", window.blocks());
        send(&mut window, now, 10_000, Span::from_micros(50), 8_000);
        assert!(window.blocks() <= 128, "{} are enough at 0.1 Gbit/s", window.blocks());
    }

    #[test]
    fn has_two_round_trips_under_way_on_long_paths_also_where_the_path_grew_longer() {
        let mut window = window();
        let now = send(&mut window, Time::ZERO, 10_000, Span::from_micros(50), 20_000);
        assert!(window.blocks() < 100);
        send(&mut window, now, 60_000, Span::from_millis(20), 20_000);
        assert!(window.blocks() >= 700, "40 ms of 20,000 packets a second, not {}", window.blocks());
    }

    #[test]
    fn what_waits_goes_in_the_order_of_blocks_and_the_oldest_never_waits() {
        let mut window = window();
        for block in (0..64).map(|block| block + 100) {
            assert!(window.begin(block));
        }
        assert!(!window.begin(300) && !window.begin(200));
        assert_eq!(window.release(), None, "no answer has come");
        assert!(window.begin(0), "the oldest");
        window.ended();
        window.ended();
        assert_eq!((window.release(), window.release()), (Some(200), None));
        window.advance(|block| block < 300);
        assert_eq!(window.release(), Some(300), "now it is the oldest");
    }

    #[test]
    fn a_small_tensor_changes_nothing() {
        let mut window = window();
        let now = send(&mut window, Time::ZERO, 10_000, Span::from_micros(50), 1_000_000);
        let now = send(&mut window, now, 10, Span::from_micros(50), 1_000_000);
        send(&mut window, now, 100, Span::from_millis(10), 1_000);
        assert_eq!(window.blocks(), 500);
    }
}
