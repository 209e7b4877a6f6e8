//! The shape of a link: the numbers of its token bucket.
//!
//! The bucket stands for a NIC's serialiser. Its rate counts Ethernet frames without preamble, check sequence and gap:
//! 14 bytes above the IP packet. So a full-sized SwitchML packet (1,440 bytes of vector in a frame of 1,514) reaches at
//! most 0.951 of the rate, and a TCP stream of full segments 0.957.

use crate::error::TestbedError;

/// `tc tbf` re-segments any GSO packet longer than its burst; the longest is 64 KiB of payload in 45 frames.
const MIN_BURST_BYTES: u64 = 128 * 1024;
/// How late the kernel's timers may run on a busy machine without costing rate.
const TIMER_SLACK_US: u64 = 250;
/// The least size of the queue: it holds the pools of several hosts (each at most a bandwidth-delay product, SwitchML
/// appendix C), so that a lossless scenario loses nothing.
const MIN_LIMIT_BYTES: u64 = 4 * 1024 * 1024;
/// The size grows with the rate: it holds what the link sends in this time.
const LIMIT_US: u64 = 10_000;

/// The speed of a link, each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shaping {
    /// As fast as the machine copies.
    Unshaped,
    /// A token bucket of this many bits per second in each direction.
    BitsPerSecond(u64),
}

impl Shaping {
    /// A link of this many gigabits per second.
    pub fn gbps(gbps: f64) -> Result<Shaping, TestbedError> {
        if (0.001..=1000.0).contains(&gbps) {
            Ok(Shaping::BitsPerSecond((gbps * 1e9).round() as u64))
        } else {
            Err(TestbedError::Options(format!("a link of {gbps} Gbit/s cannot be shaped; give 0.001 to 1000")))
        }
    }

    /// How many bytes may pass at once after a pause.
    pub fn burst_bytes(self) -> Option<u64> {
        match self {
            Shaping::Unshaped => None,
            Shaping::BitsPerSecond(rate) => Some(MIN_BURST_BYTES.max(rate / 8 * TIMER_SLACK_US / 1_000_000)),
        }
    }

    /// How many bytes may wait; more are dropped.
    pub fn limit_bytes(self) -> Option<u64> {
        match self {
            Shaping::Unshaped => None,
            Shaping::BitsPerSecond(rate) => Some(MIN_LIMIT_BYTES.max(rate / 8 * LIMIT_US / 1_000_000)),
        }
    }

    /// The arguments of `tc` after the device and its handle; `None` for an unshaped link.
    pub(crate) fn tbf(self) -> Option<String> {
        match self {
            Shaping::Unshaped => None,
            Shaping::BitsPerSecond(rate) => Some(format!(
                "tbf rate {rate}bit burst {}b limit {}b",
                self.burst_bytes().unwrap_or(MIN_BURST_BYTES),
                self.limit_bytes().unwrap_or(MIN_LIMIT_BYTES)
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_grows_with_the_rate_and_never_splits_a_gso_packet() {
        let slow = Shaping::gbps(1.0).expect("a rate");
        assert_eq!(slow.tbf().as_deref(), Some("tbf rate 1000000000bit burst 131072b limit 4194304b"));
        let fast = Shaping::gbps(10.0).expect("a rate");
        assert_eq!((fast.burst_bytes(), fast.limit_bytes()), (Some(312_500), Some(12_500_000)));
        assert_eq!(Shaping::Unshaped.tbf(), None);
    }

    #[test]
    fn an_impossible_rate_is_refused_with_a_sentence() {
        for gbps in [0.0, -1.0, f64::NAN, 1e6] {
            assert!(Shaping::gbps(gbps).unwrap_err().to_string().contains("cannot be shaped"));
        }
    }
}
