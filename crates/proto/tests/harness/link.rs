//! One direction of a link: rate, delay, queue, and the faults that a seed draws.

use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};

/// Bytes that Ethernet (14), IPv4 (20) and UDP (8) add to a datagram; preamble, FCS and gap are left out.
pub const FRAMING: usize = 42;

/// What a link does to packets. Probabilities are between 0 and 1.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    pub rate_bps: u64,
    pub delay: Span,
    /// Probability that a packet vanishes.
    pub loss: f64,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet is late by up to `reorder_delay`, so that later ones overtake it.
    pub reorder: f64,
    pub reorder_delay: Span,
    /// Probability that bits flip on the way. The receiver's UDP checksum sees it: the packet is lost there.
    pub corrupt: f64,
    /// Bits that change on the way, and that UDP's checksum does not see.
    pub flips: Option<Flips>,
    /// Bytes that wait at most; more are dropped at the tail.
    pub queue_bytes: u64,
    /// Queue length from which ECN-capable packets are marked.
    pub mark_bytes: u64,
}

/// Of each `every` packets that are longer than `from` bytes, a bit behind these changes in one.
#[derive(Clone, Copy, Debug)]
pub struct Flips {
    pub every: u64,
    pub from: usize,
}

impl Default for LinkConfig {
    /// 1 Gbit/s, 10 us, no faults, an endless queue without marks.
    fn default() -> LinkConfig {
        LinkConfig {
            rate_bps: 1_000_000_000,
            delay: Span::from_micros(10),
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_delay: Span::from_micros(200),
            corrupt: 0.0,
            flips: None,
            queue_bytes: u64::MAX,
            mark_bytes: u64::MAX,
        }
    }
}

/// What a link did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    pub packets: u64,
    /// Bytes with framing, of packets that left the queue.
    pub bytes: u64,
    pub lost: u64,
    pub corrupted: u64,
    pub flipped: u64,
    pub overflowed: u64,
    pub marked: u64,
}

/// One direction.
pub struct Link {
    pub config: LinkConfig,
    pub counts: LinkCounts,
    busy_until: Time,
    /// Packets that were long enough for `flips`.
    long: u64,
    rng: SplitMix,
}

impl Link {
    pub fn new(config: LinkConfig, seed: u64) -> Link {
        Link { config, counts: LinkCounts::default(), busy_until: Time::ZERO, long: 0, rng: SplitMix(seed) }
    }

    /// Bytes that wait at `now`.
    pub fn queued_bytes(&self, now: Time) -> u64 {
        (u128::from(self.busy_until.since(now).0) * u128::from(self.config.rate_bps) / 8 / 1_000_000_000_000) as u64
    }

    /// Sends a packet: the times at which it arrives (none if lost, two if doubled) and its congestion bits then.
    pub fn send(&mut self, now: Time, wire_len: usize, ecn: Ecn) -> (Vec<Time>, Ecn) {
        let bytes = (wire_len + FRAMING) as u64;
        let queued = self.queued_bytes(now);
        self.counts.packets += 1;
        if queued.saturating_add(bytes) > self.config.queue_bytes {
            self.counts.overflowed += 1;
            return (Vec::new(), ecn);
        }
        let ecn = if ecn != Ecn::NotCapable && queued >= self.config.mark_bytes {
            self.counts.marked += 1;
            Ecn::CongestionExperienced
        } else {
            ecn
        };
        let serialise = u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(self.config.rate_bps);
        self.busy_until = self.busy_until.max(now) + Span(serialise as u64);
        self.counts.bytes += bytes;
        if self.rng.chance(self.config.loss) {
            self.counts.lost += 1;
            return (Vec::new(), ecn);
        }
        if self.rng.chance(self.config.corrupt) {
            self.counts.corrupted += 1;
            return (Vec::new(), ecn);
        }
        let copies = 1 + usize::from(self.rng.chance(self.config.duplicate));
        let arrivals = (0..copies).map(|_| self.busy_until + self.config.delay + self.extra_delay()).collect();
        (arrivals, ecn)
    }

    /// Changes a bit of a packet that is to leave, if it is one of those to which that happens.
    pub fn flip(&mut self, bytes: &mut [u8]) {
        let Some(Flips { every, from }) = self.config.flips.filter(|flips| bytes.len() > flips.from) else { return };
        self.long += 1;
        if self.long.is_multiple_of(every) {
            let bit = 8 * from + self.rng.below(8 * (bytes.len() - from) as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.counts.flipped += 1;
        }
    }

    fn extra_delay(&mut self) -> Span {
        if self.rng.chance(self.config.reorder) {
            Span(self.rng.below(self.config.reorder_delay.0.max(1)))
        } else {
            Span::ZERO
        }
    }
}

/// The splitmix64 generator.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability; draws nothing where it is zero, so that one fault's draws do not move another's.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}
