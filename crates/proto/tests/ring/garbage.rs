//! What strangers send changes nothing, and what members send in error never panics.

use proptest::prelude::*;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::ring::wire::{self, HEADER_LEN};

use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check_sums, collective, job, ring, submit_all};

/// Bytes that are no packet of the job: random, or with the right header up to some point and a wrong key.
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

fn drain(machine: &mut dyn Host, now: Time) {
    let mut buf = vec![0; machine.max_packet_len()];
    let mut sent = 0;
    while let Some(transmit) = machine.poll_transmit(now, &mut buf) {
        sent += 1;
        assert!(transmit.len <= buf.len() && sent < 10_000, "the machine comes to rest");
    }
    while machine.poll_event().is_some() {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn strangers_change_nothing(packets in prop::collection::vec((garbage(), 0u16..6, 0usize..4), 1..200)) {
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
        for world in [1, 2, 4] {
            let mut job = job(4, 64);
            job.world = world;
            let mut machine = crate::setup::host(&job, 0);
            let mut now = Time::ZERO;
            for op in 0..2 {
                machine.submit(now, collective(0, op, 1000, Some(at_ms(400)))).unwrap();
                drain(&mut *machine, now);
            }
            for (bytes, from, wait_ms) in &packets {
                let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::CongestionExperienced };
                let _ = machine.handle_packet(now, Addr::Worker(Rank(*from)), packet);
                drain(&mut *machine, now);
                now += Span::from_millis(wait_ms / 20);
                if machine.poll_timeout().is_some_and(|due| due <= now) {
                    machine.handle_timeout(now);
                    drain(&mut *machine, now);
                    prop_assert!(machine.poll_timeout().is_none_or(|due| due > now), "no timer stays due");
                }
            }
        }
    }
}

#[test]
fn members_that_are_no_neighbours_are_not_listened_to() {
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
