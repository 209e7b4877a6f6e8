//! The entry points of the fuzzers in `fuzz/`, driven on the stable compiler with bytes that are nearly right.

#[path = "../../../fuzz/src/machines/mod.rs"]
mod entries;

use proptest::collection::vec;
use proptest::prelude::*;

/// What a packet says of its collective: few elements, most types and operators, no root, one, or a broadcast.
fn collective() -> impl Strategy<Value = [u8; 8]> {
    let root = prop::sample::select(vec![[0xFF, 0xFF], [0, 0], [0, 1]]);
    (0..60u8, 0..10u8, 0..9u8, root).prop_map(|(elements, dtype, op, [high, low])| {
        [0, 0, 0, elements, if op == 0 { 4 } else { dtype }, op, high, low]
    })
}

/// A plausible packet of SwitchML, without its vector.
fn header() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), 0..4u8, 0..5u8, 0..4u8, collective(), any::<i16>(), 0..4u8).prop_map(
        |(kind, wid, idx, flags, collective, exponent, phase)| {
            let mut bytes = vec![0x54, 0x42, 2, 1, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
            bytes.extend(collective);
            bytes.extend([0, wid, 0, idx, 0, 0, 0, phase]);
            bytes.extend(exponent.to_be_bytes());
            bytes.extend([flags, 0]);
            bytes
        },
    )
}

/// A packet as `entries::packets` cuts it out of the input, with a vector of some words or a body of any length.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![vec(any::<u8>(), 0..40), (0..9usize).prop_flat_map(|words| vec(any::<u8>(), 4 * words))];
    (any::<u8>(), header(), body, 0..10u8).prop_map(|(from, mut packet, body, cut)| {
        packet.extend(body);
        if cut == 0 {
            packet.truncate(packet.len() / 2);
        }
        let mut record = vec![from, packet.len() as u8];
        record.extend(packet);
        record
    })
}

/// The same of Canary.
fn canary_header() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop::sample::select(vec![0u8, 0x80, 0xC0, 0x40, 0x01, 0x20, 0xC2]);
    let addresses = (0..12u8, 0..12u8, prop::sample::select(vec![9u8, 255]));
    let numbers = (15..24u8, 0..20u8, 0..4u8, 0..4u8, 0..3u8, 0..4u8);
    (addresses, numbers, flags, collective(), any::<u32>()).prop_map(
        |((to, root, switch), (kind, id, counter, children, attempt, wid), flags, collective, proof)| {
            let mut bytes = vec![0x54, 0x42, 2, 3, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
            bytes.extend([0, 0, 0, to % 4 * 3, 0, 0, 0, id, 0, counter, 0, 3, 0, 0, 0, children]);
            bytes.extend([if switch == 9 { 0 } else { 255 }; 3]);
            bytes.extend([switch, 0, 0, 0, root, flags, 0, attempt, 0, 0, 1, 0, wid]);
            bytes.extend(proof.to_be_bytes());
            bytes.extend(collective);
            bytes
        },
    )
}

fn canary_input() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![vec(any::<u8>(), 0..40), (0..9usize).prop_flat_map(|words| vec(any::<u8>(), 4 * words))];
    let record = (any::<u8>(), canary_header(), body).prop_map(|(from, mut packet, body)| {
        packet.extend(body);
        let mut record = vec![from, packet.len() as u8];
        record.extend(packet);
        record
    });
    prop_oneof![vec(any::<u8>(), 0..600), vec(record, 0..120).prop_map(|records| records.concat())]
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..600), vec(record(), 0..120).prop_map(|records| records.concat())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn common_header(bytes in prop_oneof![vec(any::<u8>(), 0..40), header()]) {
        entries::common_header(&bytes);
    }

    #[test]
    fn switchml_wire(header in header(), body in vec(any::<u8>(), 0..140), cut in 0..200usize) {
        let mut bytes = header;
        bytes.extend(body);
        bytes.truncate(cut);
        entries::switchml::wire(&bytes);
    }

    #[test]
    fn switchml_pipeline(bytes in input()) {
        entries::switchml::pipeline(&bytes);
    }

    #[test]
    fn switchml_host(bytes in input()) {
        entries::switchml::host(&bytes);
    }

    #[test]
    fn ring_wire(header in header(), body in vec(any::<u8>(), 0..160), cut in 0..200usize) {
        let mut bytes = header;
        bytes.extend(body);
        bytes.truncate(cut);
        entries::ring::wire(&bytes);
    }

    #[test]
    fn ring_host(bytes in input()) {
        entries::ring::host(&bytes);
    }

    #[test]
    fn canary_wire(header in canary_header(), body in vec(any::<u8>(), 0..140), cut in 0..200usize) {
        let mut bytes = header;
        bytes.extend(body);
        bytes.truncate(cut);
        entries::canary::wire(&bytes);
    }

    #[test]
    fn canary_switch(bytes in canary_input()) {
        entries::canary::switch(&bytes);
    }

    #[test]
    fn canary_host(bytes in canary_input()) {
        entries::canary::host(&bytes);
    }
}
