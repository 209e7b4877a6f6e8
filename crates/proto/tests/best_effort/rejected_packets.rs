//! Packets that nobody of good will sends: counted by name, no aggregator freed, no sum changed.

use tributary_numeric::{BlockExponent, DType, ReduceOp};
use tributary_proto::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{JobId, NodeId, Rank};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire::Common;

use crate::fabric::{Choice, Fabric};
use crate::setup::{KEY, at_us, collective, expected, family, input, output};

const SPEC: Spec = Spec::allreduce(8, DType::I32, ReduceOp::Sum);

/// A gradient of rank 1 for the first block, except for what a test changes.
fn header() -> Header {
    Header {
        seq: 1,
        prog: 0,
        index: 0,
        received: 0,
        flags: Flags::default(),
        wid: Rank(1),
        count: 1,
        attempt: 0,
        exponent: BlockExponent::ZERO,
        scale: BlockExponent::ZERO,
        spec: SPEC,
    }
}

fn packet(protocol: &Protocol, kind: Kind, header: &Header, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    Common { protocol: protocol.code, kind: 0, job: JobId(1), key: KEY }.emit(&mut bytes);
    header.emit(kind, &mut bytes);
    bytes.extend(body);
    bytes
}

/// Four ranks, of which the last has not come yet: the switch holds two parts of the first block.
fn waiting(protocol: &'static Protocol) -> Fabric {
    let mut fabric = Fabric::star(4, &Choice::of(protocol));
    (0..3).for_each(|rank| fabric.submit(rank, collective(input(rank, 8), ReduceOp::Sum)));
    fabric.run_until(at_us(5));
    assert_eq!(fabric.in_use(), 1);
    fabric
}

/// The last rank comes, and all is as if nothing had happened.
fn ends_well(fabric: &mut Fabric, what: &str) {
    assert_eq!(fabric.in_use(), 1, "{what}: nothing was freed");
    fabric.submit(3, collective(input(3, 8), ReduceOp::Sum));
    fabric.run(Span::from_millis(20));
    let expected = expected(4, 8);
    fabric.events.iter_mut().for_each(|events| assert_eq!(output::<i32>(events), expected, "{what}"));
}

fn drops(fabric: &Fabric, reason: DropReason) -> u64 {
    fabric.switches[0].report(JobId(1)).expect("the job is there").drops.get(reason)
}

#[test]
fn a_switch_counts_what_is_not_a_members_by_name_and_keeps_its_contents() {
    let forged = [
        (
            "a gradient of another rank",
            Kind::Gradient,
            Header { wid: Rank(3), ..header() },
            32,
            DropReason::WrongWorker,
        ),
        ("of no rank", Kind::Gradient, Header { wid: Rank(9), ..header() }, 32, DropReason::BadField),
        (
            "a sum from a worker",
            Kind::Sum,
            Header { flags: Flags::FULL, count: 3, ..header() },
            32,
            DropReason::WrongWorker,
        ),
        (
            "a result from a worker",
            Kind::Aack,
            Header { flags: Flags::MULTICAST, ..header() },
            32,
            DropReason::NotAMember,
        ),
        ("another's acknowledgement", Kind::Gack, header(), 0, DropReason::NotAMember),
        ("a number far ahead", Kind::Gradient, Header { seq: 1000, ..header() }, 32, DropReason::Ahead),
        ("half of the circle ahead", Kind::Gradient, Header { seq: 1 << 31, ..header() }, 32, DropReason::Ahead),
        ("part of an element", Kind::Gradient, Header { seq: 2, ..header() }, 33, DropReason::BadLength),
        ("a disagreement from a worker", Kind::Mismatch, header(), 20, DropReason::NotAMember),
        ("a call to send again", Kind::Need, header(), 0, DropReason::NotAMember),
        (
            "a goodbye of another rank",
            Kind::Leaving,
            Header { wid: Rank(0), count: 3, ..header() },
            8,
            DropReason::WrongWorker,
        ),
    ];
    for protocol in family() {
        for (what, kind, header, len, reason) in &forged {
            // Of rank 1's host, which serves number 2: it may not send a gradient of that.
            let header = if *what == "part of an element" { Header { seq: 3, ..*header } } else { *header };
            let mut fabric = waiting(protocol);
            let (before, switch) = (drops(&fabric, *reason), fabric.switch(0));
            fabric.inject(NodeId(1), switch, packet(protocol, *kind, &header, &vec![1; *len]));
            fabric.run_until(at_us(10));
            assert_eq!(drops(&fabric, *reason), before + 1, "{protocol}: {what}");
            ends_well(&mut fabric, what);
        }
    }
}

#[test]
fn a_server_counts_bitmaps_that_cannot_be_and_changes_no_sum() {
    let sum = |flags, count| Header { flags, count, ..header() };
    let vector = [7; 32];
    let forged: [(&str, Header, Vec<u8>); 6] = [
        ("its own rank", sum(Flags::EDGE, 2), [&vector[..], &[0b0011]].concat()),
        ("ranks that there are not", sum(Flags::EDGE, 2), [&vector[..], &[0b10010]].concat()),
        ("another count", sum(Flags::EDGE, 3), [&vector[..], &[0b0110]].concat()),
        ("no bitmap", sum(Flags::EDGE, 2), Vec::new()),
        ("nobody", sum(Flags::EDGE, 0), [&vector[..], &[0]].concat()),
        ("another length", sum(Flags::EDGE, 2), [&vector[..30], &[0b0110]].concat()),
    ];
    for protocol in family() {
        for (what, header, body) in &forged {
            let mut fabric = waiting(protocol);
            let before = fabric.hosts[0].stats().drops.total();
            let switch = fabric.switch(0);
            fabric.inject(switch, NodeId(0), packet(protocol, Kind::Sum, header, body));
            fabric.run_until(at_us(10));
            assert_eq!(fabric.hosts[0].stats().drops.total(), before + 1, "{protocol}: {what}");
            ends_well(&mut fabric, what);
        }
    }
}

#[test]
fn a_worker_counts_answers_that_are_not_for_it() {
    let forged = [
        ("another's acknowledgement", Kind::Gack, Header { wid: Rank(2), ..header() }, 0),
        ("a result of nothing that it sent", Kind::Aack, Header { seq: 7, ..header() }, 32),
        (
            "a result of another type",
            Kind::Aack,
            Header { spec: Spec::allreduce(8, DType::U8, ReduceOp::Sum), ..header() },
            8,
        ),
        ("a short result", Kind::Aack, header(), 28),
        ("a result of an attempt that is not", Kind::Aack, Header { attempt: 3, ..header() }, 32),
        ("another switch's results", Kind::Aack, Header { wid: Rank(8), flags: Flags::MULTICAST, ..header() }, 32),
        ("a word to send again from far ahead", Kind::Aack, Header { attempt: 2, flags: Flags::AGAIN, ..header() }, 0),
        ("half a report", Kind::Report, header(), 3),
        ("half a disagreement", Kind::Mismatch, header(), 7),
    ];
    for protocol in family() {
        for (what, kind, header, len) in &forged {
            let mut fabric = waiting(protocol);
            let before = fabric.hosts[1].stats().drops.total();
            let switch = fabric.switch(0);
            fabric.inject(switch, NodeId(1), packet(protocol, *kind, header, &vec![1; *len]));
            fabric.run_until(at_us(10));
            assert_eq!(fabric.hosts[1].stats().drops.total(), before + 1, "{protocol}: {what}");
            ends_well(&mut fabric, what);
        }
    }
}

#[test]
fn one_that_lies_about_its_progress_slows_nobody_but_its_own_job_and_changes_no_sum() {
    for protocol in family() {
        let mut fabric = waiting(protocol);
        let switch = fabric.switch(0);
        // Gradients of block after block that nobody else knows, up to two windows ahead.
        for seq in (3..30).filter(|seq| (seq - 1) % 4 != 1) {
            fabric.inject(NodeId(1), switch, packet(protocol, Kind::Gradient, &Header { seq, ..header() }, &[9; 32]));
        }
        fabric.run(Span::from_micros(5));
        fabric.submit(3, collective(input(3, 8), ReduceOp::Sum));
        fabric.run(Span::from_millis(50));
        let expected = expected(4, 8);
        fabric.events.iter_mut().for_each(|events| assert_eq!(output::<i32>(events), expected, "{protocol}"));
    }
}

/// A position holds one block at a time: whatever a member sends, its job holds no more aggregators than its window has
/// positions, and the rest is another job's.
#[test]
fn a_job_that_floods_holds_no_more_than_its_window() {
    for protocol in family() {
        let mut fabric = waiting(protocol);
        let (switch, before) = (fabric.switch(0), drops(&fabric, DropReason::Ahead));
        for seq in (3..5_000).filter(|seq| (seq - 1) % 4 != 1) {
            fabric.inject(NodeId(1), switch, packet(protocol, Kind::Gradient, &Header { seq, ..header() }, &[9; 32]));
        }
        fabric.run(Span::from_micros(5));
        assert!(fabric.peak_of(0) <= 16, "{protocol}: {} of 1,024 aggregators", fabric.peak_of(0));
        assert!(drops(&fabric, DropReason::Ahead) > before, "{protocol}");
    }
}

/// Where a hash places blocks, packets carry how often the server has moved the position. The switch makes a place of
/// it that it has, whatever the number.
#[test]
fn a_number_of_moves_beyond_all_aggregators_names_a_bucket_that_is_there() {
    for protocol in family() {
        for index in [7, 1_024, 1 << 31, u32::MAX] {
            let switch = [("placement", "hash"), ("aggregators", "7")];
            let mut fabric = Fabric::star(4, &Choice { switch: &switch, ..Choice::of(protocol) });
            let body: Vec<u8> = input(1, 8).iter().flat_map(|value| value.to_be_bytes()).collect();
            let header = Header { index, ..header() };
            let to = fabric.switch(0);
            fabric.inject(NodeId(1), to, packet(protocol, Kind::Gradient, &header, &body));
            fabric.run_until(at_us(5));
            assert_eq!(fabric.in_use(), 1, "{protocol}");
            (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8), ReduceOp::Sum)));
            fabric.run(Span::from_millis(20));
            let expected = expected(4, 8);
            fabric.events.iter_mut().for_each(|events| assert_eq!(output::<i32>(events), expected, "{protocol}"));
            assert!(fabric.peak_of(0) <= 7, "{protocol}");
        }
    }
}
