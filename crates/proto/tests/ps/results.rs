//! The sums, and what is said when they do not come.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent};
use tributary_proto::contract::ids::ServerId;
use tributary_proto::tensors::{ElementTensor, VecStorage};

use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check, collective, network, network_with};

const ELEMENTS: usize = 10_000;

#[test]
fn sums_are_exact_with_servers_of_their_own_and_with_one_beside_each_worker() {
    for loss in [0.0, 0.05] {
        for (world_size, dedicated) in [(1, 0), (4, 0), (4, 1), (4, 2), (3, 4)] {
            let mut net = network(7, LinkConfig { loss, ..LinkConfig::default() }, world_size, dedicated);
            for op in 0..3 {
                for rank in 0..world_size {
                    net.submit(rank.into(), collective(rank, op, ELEMENTS, None)).unwrap();
                }
            }
            let events = net.run_until_idle(at_ms(10_000));
            for events in &events[..usize::from(world_size)] {
                assert_eq!(events.len(), 3, "{world_size} workers, {dedicated} servers, loss {loss}");
                events.iter().zip(0..).for_each(|(event, op)| check(event, world_size, op));
            }
        }
    }
}

/// A range has a code, so that sums of it are exact.
#[test]
fn sums_of_codes_have_every_rank_once() {
    for (down, (world_size, dedicated)) in
        ["8", "16"].into_iter().flat_map(|down| [(1, 0), (4, 0), (4, 2)].map(|each| (down, each)))
    {
        let options = [("numbers", "int8"), ("down", down)];
        let link = LinkConfig { loss: 0.05, duplicate: 0.05, ..LinkConfig::default() };
        let mut net = network_with(7, link, world_size, dedicated, &options);
        let values: Vec<f32> = (0..ELEMENTS).map(|at| [2.0, -2.0, 0.0][at % 3]).collect();
        for rank in 0..world_size {
            let tensor = Box::new(ElementTensor::new(VecStorage::new(values.clone()), ReduceOp::Sum));
            net.submit(rank.into(), Collective { tensor, deadline: None }).unwrap();
        }
        let expected: Vec<u8> = values.iter().flat_map(|value| (value * f32::from(world_size)).to_be_bytes()).collect();
        for events in &net.run_until_idle(at_ms(10_000))[..usize::from(world_size)] {
            let [HostEvent::Done { tensor, .. }] = &events[..] else {
                panic!("{world_size}, {dedicated}, down={down}")
            };
            let mut bytes = vec![0; 4 * ELEMENTS];
            tensor.read_output(0..ELEMENTS, &mut bytes);
            assert!(bytes == expected, "{world_size} workers, {dedicated} servers, down={down}");
        }
    }
}

#[test]
fn a_silent_server_is_named() {
    for dedicated in [0, 2] {
        let mut net = network(7, LinkConfig::default(), 2, dedicated);
        net.kill_host(if dedicated == 0 { 1 } else { 3 });
        net.submit(0, collective(0, 0, ELEMENTS, Some(at_ms(500)))).unwrap();
        if dedicated > 0 {
            net.submit(1, collective(1, 0, ELEMENTS, Some(at_ms(500)))).unwrap();
        }
        let events = net.run_until_idle(at_ms(10_000));
        // Where the one beside it is alone, rank 0's own server misses rank 1, whichever block is the oldest.
        let HostEvent::Failed { error, .. } = &events[0][0] else { panic!("without a server") };
        match error {
            CollectiveError::ServerSilent { server, .. } => assert_eq!(*server, ServerId(1)),
            CollectiveError::Missing { missing, .. } => assert_eq!((dedicated, missing.len()), (0, 1)),
            other => panic!("{other}"),
        }
    }
}
