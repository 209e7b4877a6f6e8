//! The header of a piece to the bit, of each shape; acknowledgements, notices and faults are the links' and are among
//! the ring's.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::time::Time;
use tributary_proto::sparcml::wire::{self, DATA_LEN, Data};

use crate::harness::golden;
use crate::harness::reduction::host;
use crate::harness::sparse::collective;
use crate::setup::{dense_job, sparse_job};

/// What the first of two ranks sends first.
fn packets(density: &[(u32, f32)], algorithm: &str) -> Vec<Vec<u8>> {
    let mut machine = host(&sparse_job(2, 4, algorithm), 0, 0);
    machine.submit(Time::ZERO, collective(density, 40, ReduceOp::Sum)).unwrap();
    drain(&mut *machine)
}

fn drain(machine: &mut dyn tributary_proto::contract::host::Host) -> Vec<Vec<u8>> {
    let mut buf = vec![0; machine.max_packet_len()];
    let next = || machine.poll_transmit(Time::ZERO, &mut buf).map(|transmit| buf[..transmit.len].to_vec());
    std::iter::from_fn(next).collect()
}

#[test]
fn fragments_of_each_shape() {
    let pairs = packets(&[(3, 1.0), (30, -2.0), (39, 0.5)], "ssar_recursive_double");
    let [first, second] = &pairs[..] else { panic!("{} packets of two pairs each", pairs.len()) };
    let all: Vec<(u32, f32)> = (0..40).map(|index| (index, index as f32)).collect();
    let dense = packets(&all, "ssar_split_allgather");
    let mut machine = host(&dense_job(2, 4, "auto"), 0, 0);
    let floats = crate::harness::hosts::separate(vec![1.0f32, 2.0, 3.0], ReduceOp::Sum);
    machine.submit(Time::ZERO, floats).unwrap();
    let full = drain(&mut *machine);
    golden::check(
        "sparcml",
        &[
            ("DATA of rank 0: two indices of 40 f32 and their values, in step 1, piece 0 of 2", first.clone()),
            ("DATA: piece 1", second.clone()),
            ("DATA in step 0: part 1 of the indices, dense, eight of its 20 elements", dense[0].clone()),
            ("DATA of a dense tensor of three f32", full[0].clone()),
        ],
    );
    for packet in [first, &dense[0], &full[0]] {
        let header = Data::parse(packet).unwrap();
        let mut again = packet.clone();
        header.emit(&mut again);
        assert_eq!(again, *packet);
    }
    assert_eq!(Data::parse(first).unwrap().spec.dtype, DType::F32);
}

#[test]
fn every_shorter_packet_is_truncated_or_of_bad_length() {
    let packet = packets(&[(3, 1.0), (30, -2.0), (39, 0.5)], "ssar_recursive_double").swap_remove(0);
    for len in 0..packet.len() {
        let mut machine = host(&sparse_job(2, 4, "ssar_recursive_double"), 1, 1);
        machine.submit(Time::ZERO, collective(&[(1, 1.0f32)], 40, ReduceOp::Sum)).unwrap();
        let packet = Packet { bytes: &packet[..len], wire_len: len, ecn: Ecn::NotCapable };
        let outcome = machine.handle_packet(Time::ZERO, Addr::Worker(Rank(0)), packet);
        assert!(matches!(outcome, Err(DropReason::Truncated | DropReason::BadLength)), "{len}: {outcome:?}");
    }
    assert!(packet.len() > DATA_LEN);
    assert_eq!(wire::describe(&packet).kind, "Data");
}
