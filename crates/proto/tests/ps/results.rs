//! The sums, and what is said when they do not come.

use tributary_proto::contract::host::{CollectiveError, HostEvent};
use tributary_proto::contract::ids::ServerId;

use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check, collective, network};

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
