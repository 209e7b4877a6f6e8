//! Packets as the paper has them, and what goes wrong: ranks that disagree, ranks that are not there.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::protocol::ShardShape;
use tributary_proto::contract::tensor::{Primitive, Spec};
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::protocols;

use super::{bits, collective, drawn, job, tensor, whole};
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, host, star, switch_config};
use crate::setup::{options, racks};

/// Figure 12: two elements a packet, blocks of four. Each row is slot, shard, count and pairs of a packet that a host
/// sends.
#[test]
fn packets_are_those_of_figure_12() {
    const HOSTS: [[i32; 12]; 2] = [[0, 0, 10, 17, 1, 0, 12, 3, 0, 5, 0, 0], [6, 0, 4, 0, 0, 0, 0, 0, 7, 0, 2, 9]];
    type Row = (u8, u8, u8, &'static [(u16, i32)]);
    let rows: [&[Row]; 2] = [
        &[(0, 0, 1, &[(2, 10), (3, 17)]), (1, 0, 0, &[(0, 1), (2, 12)]), (1, 1, 2, &[(3, 3)]), (2, 0, 1, &[(1, 5)])],
        // Block 1 is empty, and block 2 takes two packets: the second carries the counter.
        &[(0, 0, 1, &[(0, 6), (2, 4)]), (1, 0, 1, &[]), (2, 0, 0, &[(0, 7), (2, 2)]), (2, 1, 2, &[(3, 9)])],
    ];
    // Three words are two pairs of six bytes.
    let job = job(2, 3, 3, &[("span", "4")]);
    for rank in 0..2u16 {
        let mut machine = host(&job, rank, rank);
        let there = HOSTS[usize::from(rank)].iter().enumerate().filter(|(_, value)| **value != 0);
        let pairs: Vec<(u32, i32)> = there.map(|(index, &value)| (index as u32, value)).collect();
        machine.submit(at_ms(0), collective(&pairs, 12, ReduceOp::Sum)).unwrap();
        let mut buf = vec![0; machine.max_packet_len()];
        for &(slot, shard, count, pairs) in rows[usize::from(rank)] {
            let sent = machine.poll_transmit(at_ms(0), &mut buf).expect("another packet");
            assert_eq!(buf[4], 32, "SHARD");
            assert_eq!((buf[27], buf[35], buf[39]), (slot, shard, count));
            let mut body: Vec<u8> = pairs.iter().flat_map(|(offset, _)| offset.to_be_bytes()).collect();
            body.extend(pairs.iter().flat_map(|&(_, value)| bits(value)));
            assert_eq!(buf[40..sent.len], body);
        }
        assert!(machine.poll_transmit(at_ms(0), &mut buf).is_none());
    }
}

#[test]
fn a_job_is_for_dense_tensors_or_for_sparse_ones() {
    let spec = Spec::allreduce(10, tributary_numeric::DType::F32, ReduceOp::Sum);
    let (dense, sparse) = (options(&[]), options(&[("sparse", "auto")]));
    assert_eq!((PROTOCOL.check)(&spec, &dense), Ok(()));
    assert_eq!(PROTOCOL.check_sparse(&spec, &sparse), Ok(()));
    let sentence = (PROTOCOL.check)(&spec, &sparse).unwrap_err().to_string();
    assert!(sentence.contains("leave the option sparse out"), "{sentence}");
    let sentence = PROTOCOL.check_sparse(&spec, &dense).unwrap_err().to_string();
    assert!(sentence.contains("choose sparse=auto"), "{sentence}");
    let rooted = Spec { primitive: Primitive::Reduce(tributary_proto::contract::ids::Rank(0)), ..spec };
    assert!(PROTOCOL.check_sparse(&rooted, &sparse).is_err());
    let other = protocols::ALL.iter().find(|other| other.check_sparse.is_none()).expect("few can");
    let sentence = other.check_sparse(&spec, &other.options.defaults()).unwrap_err().to_string();
    assert!(sentence.contains("of a sparse tensor"), "{sentence}");
    for other in [("reproducible", "tree"), ("design", "multi:2"), ("stagger", "true")] {
        let given = [("sparse".to_owned(), "hash".to_owned()), (other.0.to_owned(), other.1.to_owned())];
        assert!(PROTOCOL.options.read(&given.into()).is_err(), "{other:?}");
    }
}

#[test]
fn ranks_that_bring_different_things_learn_who_brings_what() {
    let job = job(3, 4, 16, &[]);
    for mut network in [star(1, LinkConfig::default(), &job), racks(1, LinkConfig::default(), &job, &[&[0, 2], &[1]])] {
        for rank in 0..3u32 {
            let op = if rank == 2 { ReduceOp::Min } else { ReduceOp::Max };
            network.submit(rank as usize, collective(&[(rank, 1i16)], 20, op)).unwrap();
        }
        for events in network.run_until_idle(at_ms(10_000)) {
            let [HostEvent::Failed { error, .. }] = &events[..] else { panic!("it cannot succeed") };
            let sentence = error.to_string();
            assert!(sentence.contains("max of 20 i16") && sentence.contains("min of 20 i16"), "{sentence}");
        }
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_in_one_switch_and_in_levels() {
    let job = job(4, 4, 16, &[]);
    for mut network in
        [star(1, LinkConfig::default(), &job), racks(1, LinkConfig::default(), &job, &[&[0, 3], &[1, 2]])]
    {
        for rank in 0..3u32 {
            let tensor = Box::new(tensor(&[(rank, 1.0f32)], 500, ReduceOp::Sum));
            network.submit(rank as usize, Collective { tensor, deadline: Some(at_ms(400)) }).unwrap();
        }
        for events in network.run_until_idle(at_ms(10_000)).into_iter().take(3) {
            let [HostEvent::Failed { error, .. }] = &events[..] else { panic!("it cannot succeed") };
            assert!(error.to_string().starts_with("rank 3 did not contribute"), "{error}");
        }
    }
}

/// A rank that comes late finds sums that have gone down without it: it is told of them again.
#[test]
fn a_late_rank_gets_what_had_spilled_to_the_others() {
    let job = job(3, 2, 16, &[("sparse", "hash"), ("hash_slots", "2"), ("spill", "2"), ("span", "100")]);
    let inputs = drawn(5, 3, 300, 0.5, whole);
    let mut network = star(1, LinkConfig::default(), &job);
    for (rank, input) in inputs.iter().enumerate() {
        let at = at_ms(if rank == 1 { 900 } else { 0 });
        network.submit_at(at, rank, collective(input, 300, ReduceOp::Sum));
    }
    let sum = super::result::<f32>(network.run_until_idle(at_ms(60_000)));
    assert!(sum == super::expected(&inputs, ReduceOp::Sum));
}

#[test]
fn memory_is_charged_for_whatever_a_switch_keeps() {
    for storage in ["auto", "hash", "array"] {
        for given in [vec![], vec![("span", "5000")], vec![("hash_slots", "9"), ("spill", "5")]] {
            let given = [given, vec![("sparse", storage)]].concat();
            let job = job(5, 8, 64, &given);
            let below = tributary_proto::contract::config::Below::workers(5);
            let machine = PROTOCOL.switch(Values::Elements, &switch_config(&job, 0, &below, None)).unwrap();
            let shape = ShardShape {
                slots: 8,
                elements_per_packet: 64,
                children: 5,
                world_size: 5,
                levels: false,
                options: &job.options,
            };
            let charged = (PROTOCOL.memory)(&shape);
            let bytes = machine.memory_bytes() as u64;
            // The rest are notices and names, as for every machine of slots.
            assert!(bytes <= charged + 8_192, "{given:?}: {bytes} held, {charged} charged");
            assert!(storage == "auto" || charged <= bytes, "{given:?}: {bytes} held, {charged} charged");
        }
    }
}
