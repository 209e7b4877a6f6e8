//! The entry points of the fuzzers in `fuzz/`, driven on the stable compiler with bytes that are nearly right.

#[path = "../../../../fuzz/src/machines/mod.rs"]
mod entries;

mod canary;
mod ring;
mod switchml;

use proptest::collection::vec;
use proptest::prelude::*;

/// A plausible packet: the common header, the byte for type and operator where most protocols have it, small numbers.
fn header() -> impl Strategy<Value = Vec<u8>> {
    (
        any::<u8>(),
        0..4u8,
        0..5u8,
        0..4u8,
        prop::sample::select(vec![0x11u8, 0x12, 0x41, 0x19, 0x49, 0x48]),
        any::<i16>(),
        0..4u8,
        0..60u8,
    )
        .prop_map(|(kind, wid, idx, flags, dtype_op, exponent, phase, elements)| {
            let mut bytes = vec![0x54, 0x42, 1, 1, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
            bytes.extend([0, wid, 0, idx, flags, dtype_op]);
            bytes.extend(exponent.to_be_bytes());
            bytes.extend([0, 0, 0, phase, 0, 0, 0, elements]);
            bytes
        })
}

/// Records as `entries::packets` cuts them out of the input, each a packet behind where it comes from; or any bytes.
fn input(packet: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let record = (any::<u8>(), packet, body(), 0..10u8).prop_map(|(from, mut packet, body, cut)| {
        packet.extend(body);
        if cut == 0 {
            packet.truncate(packet.len() / 2);
        }
        let mut record = vec![from, packet.len() as u8];
        record.extend(packet);
        record
    });
    prop_oneof![vec(any::<u8>(), 0..600), vec(record, 0..120).prop_map(|records| records.concat())]
}

/// A vector of some words, or a body of any length.
fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..40), (0..9usize).prop_flat_map(|words| vec(any::<u8>(), 4 * words))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn common_header(bytes in prop_oneof![vec(any::<u8>(), 0..40), header()]) {
        entries::common_header(&bytes);
    }
}
