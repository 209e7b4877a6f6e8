//! The size of a job's packets, and the number of packets for which a switch has room: the pool size `s` (SwitchML,
//! appendix C).
//!
//! The pool is room, not a rate: hosts measure how many packets the path needs (`congestion/measured.rs` in
//! `tributary-proto`), and so does every protocol with congestion control. A worker proposes [`suggested`]; the switch
//! grants no more than [`largest`].

use std::time::Duration;

use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::wire::IPV4_AND_UDP_LEN;

/// The speed of a link whose driver does not tell it. It is that of the fastest link for which a pool is made.
const FASTEST_LINK_BITS_PER_S: u64 = 100_000_000_000;
/// The bytes under way on the fastest of short paths. With less, threads sleep and wake each other all the time. With
/// more, nothing fits the caches of switch and worker (docs/performance-driver.md has the measurements).
const SHORT_PATH_BYTES: u64 = 750_000;
/// The least number of slots that fills runs of segments.
const FEWEST: u64 = 64;
/// The number of slots that the wire format's index can name, rounded down.
const MOST: u64 = 1 << 14;
/// The bytes that the kernel charges a socket's buffer for a packet, in addition to the packet's own bytes and half as
/// many again for unused ends of pages.
const BUFFER_OVERHEAD: usize = 768;

/// Longer packets save nothing, and the loopback interface would offer 64 KiB.
pub const MAX_MTU: u32 = 9000;
/// Bytes of a job's longest packet.
pub fn packet_bytes(protocol: &'static Protocol, elements_per_packet: u16) -> usize {
    protocol.header_len + 4 * usize::from(elements_per_packet)
}

/// The most elements of four bytes that fit a UDP payload of this many bytes. The number is even, so that elements of
/// eight bytes also fill it.
pub fn elements_in(protocol: &'static Protocol, payload: usize) -> u16 {
    let elements = payload.saturating_sub(protocol.header_len) / 4;
    (elements / 2 * 2) as u16
}

/// The most elements of four bytes that any job of the protocol has in a packet.
pub fn longest_elements(protocol: &'static Protocol) -> u16 {
    elements_in(protocol, MAX_MTU as usize - IPV4_AND_UDP_LEN)
}

/// The pool size over all shards that keeps one worker's link busy: the packets of two round trips, or those of a short
/// path.
pub fn suggested(link_bits_per_s: Option<u64>, round_trip: Duration, packet_bytes: usize) -> u16 {
    let bytes_per_s = link_bits_per_s.unwrap_or(FASTEST_LINK_BITS_PER_S) / 8;
    let product = u128::from(bytes_per_s) * 2 * round_trip.as_nanos() / 1_000_000_000;
    let bytes = u64::try_from(product).unwrap_or(u64::MAX).max(SHORT_PATH_BYTES);
    let packets = bytes.div_ceil(packet_bytes.max(1) as u64);
    packets.clamp(FEWEST, MOST).next_power_of_two() as u16
}

/// The largest pool over all shards whose packets, from all workers at once, fit the shards' receive buffers of
/// `receive_buffer` bytes each. The switch's own kernel would drop one more packet. The result is a power of two. A
/// worker has one socket, which receives one packet for each slot, so it calls this with 1 for `shards` and for
/// `world_size`.
pub fn largest(receive_buffer: usize, shards: usize, world_size: u16, packet_bytes: usize) -> u16 {
    let for_one_slot = usize::from(world_size.max(1)) * (packet_bytes + packet_bytes / 2 + BUFFER_OVERHEAD);
    let slots = (receive_buffer / for_one_slot * shards).clamp(1, MOST as usize);
    1 << slots.ilog2()
}

#[cfg(test)]
mod tests {
    use tributary_proto::protocols;

    use super::*;

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn is_what_the_longest_path_takes_of_the_fastest_link() {
        let round_trip = Duration::from_micros(80);
        // At 10 Gbit/s, 160 us are 200 kB. A short path has more under way.
        assert_eq!(suggested(Some(10 * GBIT), round_trip, 1472), 512);
        assert_eq!(suggested(Some(10 * GBIT), round_trip, 8960), 128);
        assert_eq!(suggested(Some(GBIT), round_trip, 1472), 512, "a slow link has room: its hosts measure");
        assert_eq!(suggested(Some(GBIT), Duration::from_millis(5), 1472), 1024, "10 ms of 1 Gbit/s are 1.25 MB");
        assert_eq!(suggested(Some(100 * GBIT), round_trip, 1472), 2048);
        assert_eq!(suggested(None, round_trip, 1472), 2048, "an unknown link may be that fast");
        assert_eq!(suggested(Some(u64::MAX), Duration::from_secs(100), 1), MOST as u16);
        assert_eq!(suggested(Some(1), Duration::ZERO, 1 << 20), FEWEST as u16);
    }

    #[test]
    fn packets_fill_the_mtu() {
        let elements_in = |payload| elements_in(protocols::named("switchml").unwrap(), payload);
        assert_eq!(elements_in(1500 - 28), 358);
        assert_eq!(packet_bytes(protocols::named("switchml").unwrap(), 358), 1468);
        assert_eq!(elements_in(9000 - 28), 2234);
        assert_eq!(elements_in(1500 - 48), 354, "IPv6 has a longer header");
        assert_eq!(elements_in(10), 0);
        for protocol in protocols::ALL {
            let elements = super::elements_in(protocol, 1472);
            assert!((1472 - 11..=1472).contains(&packet_bytes(protocol, elements)), "{}", protocol.name);
        }
    }

    #[test]
    fn fits_the_receive_buffers_of_the_shards() {
        // A system grants 416 KiB without root and without settings of ours.
        assert_eq!(largest(425_984, 1, 4, 1472), 32);
        assert_eq!(largest(425_984, 2, 4, 1472), 64);
        assert_eq!(largest(8 << 20, 2, 8, 1472), 512);
        assert_eq!(largest(8 << 20, 2, 4, 8960), 256);
        assert_eq!(largest(1000, 1, 1000, 8960), 1, "never none");
    }
}
