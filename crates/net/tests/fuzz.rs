//! The entry points of the fabric's fuzzers in `fuzz/`, driven on the stable compiler with bytes that are nearly right.

#[path = "../../../fuzz/src/fabric.rs"]
mod entries;

use proptest::collection::vec;
use proptest::prelude::*;

/// What follows a HELLO's common header: few adverts of few dead ports, some of which do not exist.
fn hello() -> impl Strategy<Value = Vec<u8>> {
    let seq = prop_oneof![0..9u64, any::<u64>(), Just(u64::MAX)];
    let advert = (0..6u16, seq, vec(0..9u8, 0..5)).prop_map(|(switch, seq, dead)| {
        let mut bytes = [&switch.to_be_bytes()[..], &seq.to_be_bytes()].concat();
        bytes.push(dead.len() as u8);
        bytes.extend(dead);
        bytes
    });
    (4..9u32, 0..2u8, vec(advert, 0..4)).prop_map(|(node, ready, adverts)| {
        let mut bytes = node.to_be_bytes().to_vec();
        bytes.extend([ready, adverts.len() as u8]);
        bytes.extend(adverts.concat());
        bytes
    })
}

/// What follows a CARRY's.
fn carry() -> impl Strategy<Value = Vec<u8>> {
    let node = || prop_oneof![0..9u32, Just(u32::MAX)];
    (node(), node(), any::<u32>(), vec(any::<u8>(), 0..150)).prop_map(|(via, to, port, rest)| {
        [&via.to_be_bytes()[..], &to.to_be_bytes(), &port.to_be_bytes(), &rest].concat()
    })
}

/// A packet as `entries::next` cuts it out of the input.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        (Just(1u8), hello()),
        (Just(0u8), carry()),
        (Just(6u8), any::<u32>().prop_map(|micros| micros.to_be_bytes().to_vec())),
        (any::<u8>(), vec(any::<u8>(), 0..60)),
        (Just(3u8), Just([0x54, 0x42, 1, 0, 2, 0, 0].to_vec())),
    ];
    (any::<u8>(), body, 0..10u8).prop_map(|(from, (like, body), cut)| {
        let mut packet = [vec![0; 16], body].concat();
        if cut == 0 {
            packet.truncate(packet.len() / 2);
        }
        let mut record = vec![from, like, packet.len() as u8];
        record.extend(packet);
        record
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn fabric_wire(body in prop_oneof![hello(), carry(), vec(any::<u8>(), 0..300)], cut in 0..400usize) {
        let mut bytes = vec![0; 16];
        bytes.extend(body);
        bytes.truncate(cut);
        entries::fabric_wire(&bytes);
    }

    #[test]
    fn fabric_switch(records in vec(record(), 0..120)) {
        entries::fabric_switch(&records.concat());
    }
}
