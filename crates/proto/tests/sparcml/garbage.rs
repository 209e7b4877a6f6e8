//! What members send in error never panics, and what unauthorised clients send changes nothing.

use proptest::prelude::*;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::Common;

use crate::harness::hosts::{check_sums, collective, feed, submit_all};
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, host, star};
use crate::harness::sparse::collective as pairs;
use crate::setup::{ALGORITHMS, dense_job, sparse_job};

/// A packet with the job's key whose other fields are anything, near what a machine may expect or far from it.
fn nonsense() -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![0u32..40, any::<u32>()];
    let word = prop::collection::vec(small.prop_map(u32::to_be_bytes), 4..80);
    (0u8..21, word, 0usize..8, any::<bool>()).prop_map(|(kind, words, cut, plausible)| {
        let mut bytes = vec![0; 16];
        Common { kind, ..sparse_job(4, 64, "auto").common() }.emit(&mut bytes);
        bytes.extend(words.concat());
        if plausible && bytes.len() >= 44 {
            // A piece of an i32 sum of 1000 elements, first attempt: what the machine has submitted.
            bytes[16..20].copy_from_slice(&1000u32.to_be_bytes());
            bytes[20] = 0;
            (bytes[28], bytes[29]) = (0, bytes[29] & 1);
            bytes[30] = bytes[30] & 0xC0 | 1;
            bytes[31] &= 0x43;
            (bytes[34], bytes[35]) = (0, bytes[35] & 3);
            let fragment = bytes[39] & 1;
            bytes[36..44].copy_from_slice(&[0, 0, 0, fragment, 0, 0, 0, 2]);
            let count = usize::from(bytes[33]) % 30;
            (bytes[32], bytes[33]) = (0, count as u8);
            bytes.resize(44 + if bytes[31] >> 5 == 0 { 8 * count } else { 4 * count }, 0);
        } else {
            bytes.truncate(bytes.len() - cut);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn members_nonsense_never_panics(
        packets in prop::collection::vec((nonsense(), 0u16..5, 0u64..400), 1..100),
        algorithm in 0usize..4,
        is_sparse: bool,
    ) {
        for world_size in [1, 2, 4] {
            let make = if is_sparse { sparse_job } else { dense_job };
            let mut machine = host(&make(world_size, 64, ALGORITHMS[algorithm]), 0, 0);
            let brought = |op| match is_sparse {
                true => pairs(&[(3, 5i32), (900, 7)], 1000, ReduceOp::Sum),
                false => collective(0, op, 1000, None),
            };
            let deadline = Some(at_ms(400));
            feed(&mut *machine, (0..2).map(|op| Collective { deadline, ..brought(op) }), &packets);
        }
    }

    #[test]
    fn unauthorised_clients_change_nothing(packets in prop::collection::vec((nonsense(), 0u16..6, 0usize..4, 1u64..), 1..100)) {
        let sizes = [3_000, 1, 0];
        let link = LinkConfig { loss: 0.01, ..LinkConfig::default() };
        let mut net = star(1, link, &dense_job(4, 64, "auto"));
        submit_all(&mut net, &sizes, None);
        for (step, (mut bytes, from, to, key)) in packets.into_iter().enumerate() {
            if bytes.len() >= 16 {
                let stolen = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
                bytes[8..16].copy_from_slice(&(stolen ^ key).to_be_bytes());
            }
            net.run_until(Time::ZERO + Span::from_micros(2 * step as u64));
            net.inject_to_host(to, Addr::Worker(Rank(from)), &bytes);
        }
        check_sums(net.run_until_idle(at_ms(10_000)), &sizes);
    }
}
