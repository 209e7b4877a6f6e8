//! Every header to the bit: written as the golden bytes, and read from them.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::{OpId, Rank};
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::ring::wire::{self, Ack, DATA_LEN, Data, Fault, Notice, Phase};

use crate::harness::golden;
use crate::setup::{host, job, separate};

const SPEC: Spec = Spec::allreduce(100_000, DType::F32, ReduceOp::Sum);

/// A packet of `len` bytes with the common header.
fn packet(kind: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    wire::emit_common(&mut bytes, kind, &job(8, 64));
    bytes
}

#[test]
fn data() {
    let golden = golden::bytes("ring_data");
    let header = Data { seq: 258, offset: 99_998, spec: SPEC, op: 7, phase: Phase::Gather, ack_now: true, attempt: 2 };
    let mut bytes = packet(wire::DATA, DATA_LEN);
    header.emit(&mut bytes);
    bytes.extend([1.0f32, -2.0].map(f32::to_be_bytes).concat());
    assert_eq!(bytes, golden);
    assert_eq!(wire::parse_common(&golden, &job(8, 64)), Ok(wire::DATA));
    assert_eq!(Data::parse(&golden), Ok(header));
}

#[test]
fn ack() {
    let golden = golden::bytes("ring_ack");
    let ack = Ack { cum: 70, limit: 1094, echo_seq: 128, echo_attempt: 1, marks: 5 };
    let mut bytes = packet(wire::ACK, wire::MAX_CONTROL_LEN);
    let len = ack.emit(&[0x13F, 1], &mut bytes);
    assert_eq!(bytes[..len], golden);
    let (parsed, words, count) = Ack::parse(&golden).unwrap();
    assert_eq!((parsed, &words[..count]), (ack, &[0x13F, 1][..]));
}

#[test]
fn notice() {
    let golden = golden::bytes("ring_notice");
    let notice = Notice { op: OpId(65_543), worker: Rank(5) };
    let mut bytes = packet(wire::NOTICE, wire::MAX_CONTROL_LEN);
    let len = notice.emit(&mut bytes);
    assert_eq!(bytes[..len], golden);
    assert_eq!(Notice::parse(&golden, 8), Ok(notice));
    assert_eq!(Notice::parse(&golden, 5), Err(DropReason::BadField), "no such rank");
}

#[test]
fn faults() {
    let op = OpId(7);
    let silent = CollectiveError::PeerSilent { worker: Rank(5), op };
    let a_spec = Spec { elements: 10, ..SPEC };
    let b_spec = Spec::allreduce(11, DType::BF16, ReduceOp::Avg);
    let mismatch = CollectiveError::Mismatch { a: Rank(1), a_spec, b: Rank(2), b_spec, op };
    for (name, error) in [("ring_fault_silent", silent), ("ring_fault_mismatch", mismatch)] {
        let golden = golden::bytes(name);
        let fault = Fault { op, error };
        let mut bytes = packet(wire::FAULT, wire::MAX_CONTROL_LEN);
        let len = fault.emit(&mut bytes);
        assert_eq!(bytes[..len], golden, "{name}");
        assert_eq!(Fault::parse(&golden, 8), Ok(fault));
    }
}

#[test]
fn every_shorter_packet_is_truncated_or_of_bad_length() {
    for name in ["ring_data", "ring_ack", "ring_notice", "ring_fault_silent", "ring_fault_mismatch"] {
        let golden = golden::bytes(name);
        for len in 0..golden.len() {
            let mut machine = host(&job(8, 64), 4);
            machine.submit(Time::ZERO, separate(vec![1.0f32; 100_000], ReduceOp::Sum)).unwrap();
            let from = if name == "ring_ack" { 5 } else { 3 };
            let packet = Packet { bytes: &golden[..len], wire_len: len, ecn: Ecn::NotCapable };
            let outcome = machine.handle_packet(Time::ZERO, Addr::Worker(Rank(from)), packet);
            // Data that lacks only a part of its vector passes for a packet of another collective until that begins.
            let early = name == "ring_data" && len >= DATA_LEN;
            assert!(early || matches!(outcome, Err(DropReason::Truncated | DropReason::BadLength)), "{name}: {len}");
        }
    }
}
