//! The entry points of the fuzzers in `fuzz/`, driven on the stable compiler with bytes that are nearly right.

#[path = "../../../../fuzz/src/machines/mod.rs"]
mod entries;

/// The targets of a protocol, fed with its nearly right packets: its wire, its machine in switches, its host.
macro_rules! targets {
    ($entries:ident, $header:expr, $switch:ident) => {
        proptest::prelude::proptest! {
            #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1000))]

            #[test]
            fn wire(
                header in $header,
                body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..140),
                cut in 0..200usize,
            ) {
                let mut bytes = header;
                bytes.extend(body);
                bytes.truncate(cut);
                $entries::wire(&bytes);
            }

            #[test]
            fn $switch(bytes in $crate::input($header)) {
                $entries::$switch(&bytes);
            }

            #[test]
            fn host(bytes in $crate::input($header)) {
                $entries::host(&bytes);
            }
        }
    };
}

mod best_effort;
mod canary;
mod flare;
mod panama;
mod ring;
mod sparcml;
mod switchml;

use proptest::collection::vec;
use proptest::prelude::*;

/// What a packet says of its collective: few elements, most types and operators, no root, one, or a broadcast.
fn collective() -> impl Strategy<Value = [u8; 8]> {
    let root = prop::sample::select(vec![[0xFF, 0xFF], [0, 0], [0, 1]]);
    (0..60u8, 0..10u8, 0..9u8, root).prop_map(|(elements, dtype, op, [high, low])| {
        [0, 0, 0, elements, if op == 0 { 4 } else { dtype }, op, high, low]
    })
}

/// A plausible packet: the common header, the collective's where most protocols have it, small numbers.
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
