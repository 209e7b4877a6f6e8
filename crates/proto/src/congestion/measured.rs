//! As many packets as the path needs, measured while the sender runs.
//!
//! SwitchML sends a whole pool at once, and a person chooses the pool for the link (appendix C: the bandwidth-delay
//! product). A pool that is right for 10 Gbit/s stands in queues for 60 ms at 0.1 Gbit/s. That is longer than any timer
//! expects at first, and it delays the packets of others. So a sender begins with a few packets and doubles them each
//! round trip as long as that makes acknowledgements come faster. Then it keeps what twice the round trip needs, or a
//! short queue.

use std::hash::{Hash, Hasher};

use super::{Ack, Algorithm, Controller, Feedback, Loss};
use crate::contract::time::{Span, Time};

/// The algorithm as a value.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "measured",
    feedback: Feedback::EndToEnd,
    make: |settings| Box::new(Measured::new(settings.packet_bytes, settings.limits.max)),
};

/// Bytes with which a sender begins, and the least that it has under way. They are two runs of segments, one on each
/// way.
const LEAST_BYTES: usize = 96_000;
/// A queue of this time is useful, because threads and timers of ordinary hosts are late by no more than this ...
const QUEUE: Span = Span::from_millis(4);
/// ... and a queue of this many bytes is enough on any link. Packets of a longer one fall out of caches before they are
/// summed.
const QUEUE_BYTES: usize = 750_000;
/// The number of rounds of which the fastest counts. A rank that was late in one round says nothing about the network.
const ROUNDS: usize = 8;

/// The acknowledgements of one round, and the time that the fastest of them took.
#[derive(Clone, Debug, Default, Hash)]
struct Round {
    /// The first acknowledgement after a pause, or the last one of the round before; `None` while nothing is under way.
    began: Option<Time>,
    acks: u32,
    shortest: Option<Span>,
    /// True if packets had to wait: then the window and not the lack of data held the sender back.
    was_limited: bool,
}

/// The controller of one sender.
#[derive(Clone, Debug)]
pub struct Measured {
    packets: u32,
    least: u32,
    most: u32,
    /// The number of packets in [`QUEUE_BYTES`].
    queue: u32,
    round: Round,
    /// Packets a second in each of the last rounds.
    rates: [f64; ROUNDS],
    rounds: usize,
    /// The shortest time to an acknowledgement since the window was last at its least.
    round_trip: Option<Span>,
}

/// The hash does not have the rates. They come from measured times, and explorers look at times only as [`Span`]s.
impl Hash for Measured {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Measured { packets, least, most, queue, round, rates: _, rounds, round_trip } = self;
        (packets, least, most, queue, round, rounds, round_trip).hash(state);
    }
}

impl Measured {
    /// The controller of a sender of packets of this length, which never has more than `most` of them under way.
    pub fn new(packet_bytes: usize, most: u32) -> Measured {
        let least = (LEAST_BYTES.div_ceil(packet_bytes) as u32).clamp(1, most);
        Measured {
            packets: least,
            least,
            most,
            queue: (QUEUE_BYTES.div_ceil(packet_bytes) as u32).max(least),
            round: Round::default(),
            rates: [0.0; ROUNDS],
            rounds: 0,
            round_trip: None,
        }
    }

    fn end_round(&mut self, round: &Round, elapsed: Span) {
        let rate = f64::from(round.acks) / elapsed.as_secs_f64().max(1e-9);
        let fastest = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        // A round that was slow for lack of data does not count (RFC 7661).
        if round.was_limited || rate > fastest(&self.rates) {
            self.rates[self.rounds % ROUNDS] = rate;
            self.rounds += 1;
        }
        // With more than the least under way, a longer round trip may come from this host's own queue.
        let known = self.round_trip.filter(|_| self.packets > self.least);
        self.round_trip = known.into_iter().chain(round.shortest).min();
        let rate = fastest(&self.rates);
        let in_two = |trip: Span| rate * 2.0 * trip.as_secs_f64();
        let queue = (rate * QUEUE.as_secs_f64()).min(f64::from(self.queue));
        let wanted = self.round_trip.map_or(0.0, in_two).max(queue) as u32;
        self.packets = wanted.min(2 * self.packets).clamp(self.least, self.most);
    }
}

impl Controller for Measured {
    fn window(&self) -> u64 {
        self.packets.into()
    }

    fn on_ack(&mut self, ack: &Ack) {
        let round = &mut self.round;
        round.shortest = round.shortest.into_iter().chain(ack.rtt).min();
        let Some(began) = round.began else {
            round.began = Some(ack.now);
            return;
        };
        round.acks += ack.packets;
        let elapsed = ack.now.since(began);
        // Acknowledgements come in runs, so a rate over less than a round trip means nothing.
        if round.acks < self.packets || round.shortest.is_none_or(|shortest| elapsed < shortest) {
            return;
        }
        let ended = std::mem::replace(&mut self.round, Round { began: Some(ack.now), ..Round::default() });
        self.round.was_limited = ack.limited;
        self.end_round(&ended, elapsed);
    }

    fn on_limited(&mut self) {
        self.round.was_limited = true;
    }

    /// The next acknowledgement begins a round.
    fn on_idle(&mut self) {
        self.round = Round::default();
    }

    /// What is lost is not acknowledged, so the rate falls by itself.
    fn on_loss(&mut self, _: Loss) -> bool {
        false
    }

    fn on_timeout(&mut self, _: Time) {}
}
