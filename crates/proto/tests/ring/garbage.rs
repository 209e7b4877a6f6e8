//! What unauthorised clients send changes nothing, and what members send in error never panics.

use proptest::prelude::*;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::ring::wire::{self, HEADER_LEN};

use crate::harness::hosts::feed;
use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check_sums, collective, job, ring, submit_all};

/// Bytes that are not a packet of the job: random, or with the right header up to some point and a wrong key.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let random = prop::collection::vec(any::<u8>(), 0..300);
    let wrong_key = (16u8..21, 1u64.., prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(kind, key, rest)| {
        let mut job = job(4, 64);
        job.key.0 ^= key;
        let mut bytes = vec![0; 16];
        wire::emit_common(&mut bytes, kind, &job);
        bytes.extend(rest);
        bytes
    });
    prop_oneof![random, wrong_key]
}

/// A packet with the job's key whose other fields are anything, near what a machine may expect or far from it.
fn nonsense() -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![0u32..40, any::<u32>()];
    let word = prop::collection::vec(small.prop_map(u32::to_be_bytes), 4..80);
    (0u8..21, word, 0usize..8, any::<bool>()).prop_map(|(kind, words, cut, plausible)| {
        let mut bytes = vec![0; 16];
        wire::emit_common(&mut bytes, kind, &job(4, 64));
        bytes.extend(words.concat());
        if plausible {
            // A block of an i32 sum of 1000 elements, first attempt: what the machine has submitted.
            let offsets = [0u32, 64, 128, 250, 314, 500, 564, 750];
            let offset = offsets[usize::from(bytes[23]) % offsets.len()];
            bytes[20..24].copy_from_slice(&offset.to_be_bytes());
            bytes[24..28].copy_from_slice(&1000u32.to_be_bytes());
            bytes[28] = 0;
            bytes[30] = 0x41;
            bytes[31] = bytes[31] & 0xC0 | 1;
            let full = HEADER_LEN + 4 * 64;
            bytes.resize(full, 0);
        } else {
            bytes.truncate(bytes.len() - cut);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn unauthorised_clients_change_nothing(packets in prop::collection::vec((garbage(), 0u16..6, 0usize..4), 1..200)) {
        let sizes = [3_000, 1, 0];
        let mut net = ring(1, LinkConfig { loss: 0.01, ..LinkConfig::default() }, &job(4, 64));
        submit_all(&mut net, &sizes, None);
        let count = packets.len() as u64;
        for (step, (bytes, from, to)) in packets.into_iter().enumerate() {
            net.run_until(Time::ZERO + Span::from_micros(2 * step as u64));
            net.inject_to_host(to, Addr::Worker(Rank(from)), &bytes);
        }
        check_sums(net.run_until_idle(at_ms(10_000)), &sizes);
        let reasons = [
            DropReason::Truncated,
            DropReason::BadMagic,
            DropReason::BadVersion,
            DropReason::UnknownJob,
            DropReason::WrongKey,
        ];
        let drops = |reason| net.hosts.iter().map(|host| host.machine.stats().drops.get(reason)).sum::<u64>();
        prop_assert_eq!(reasons.into_iter().map(drops).sum::<u64>(), count);
    }

    #[test]
    fn members_nonsense_never_panics(packets in prop::collection::vec((nonsense(), 0u16..5, 0u64..400), 1..100)) {
        for world_size in [1, 2, 4] {
            let mut job = job(4, 64);
            job.world_size = world_size;
            let mut machine = crate::setup::host(&job, 0);
            feed(&mut *machine, (0..2).map(|op| collective(0, op, 1000, Some(at_ms(400)))), &packets);
        }
    }
}

#[test]
fn packets_of_members_that_are_not_neighbours_are_dropped() {
    let mut net = ring(1, LinkConfig::default(), &job(4, 64));
    submit_all(&mut net, &[1_000], None);
    let golden = crate::harness::golden::bytes("ring_notice");
    for (from, reason) in [
        (Addr::Worker(Rank(2)), DropReason::WrongWorker),
        (Addr::Worker(Rank(9)), DropReason::NotAMember),
        (Addr::Switch(tributary_proto::contract::ids::TreeId(0)), DropReason::NotAMember),
        (Addr::Worker(Rank(1)), DropReason::BadKind),
    ] {
        let before = net.hosts[0].machine.stats().drops.get(reason);
        net.inject_to_host(0, from, &golden);
        net.run_until(net.now);
        assert_eq!(net.hosts[0].machine.stats().drops.get(reason), before + 1);
    }
    check_sums(net.run_until_idle(at_ms(1_000)), &[1_000]);
}
