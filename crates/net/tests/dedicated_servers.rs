//! Servers on hosts of their own behind a switch whose memory jobs share: what the switch has no room for is summed there,
//! and a server that is gone is told by name. Real sockets on the loopback interface.

use std::net::SocketAddr;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::{PATIENCE, connect_options, sum_many_sizes, switch_with};
use tributary_net::client;
use tributary_net::group::{Group, GroupError};
use tributary_net::server::{RunningServer, ServerOptions};
use tributary_net::switch_daemon::RunningSwitch;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::ids::ServerId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

/// Nobody waits for this in a test that passes.
const AGES: Duration = Duration::from_secs(3_600);

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// The protocols whose jobs share a switch's memory and can have servers of their own.
fn served() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.shared.as_ref().is_some_and(|own| own.server.is_some()))
}

fn servers(switch: &RunningSwitch, count: usize) -> Vec<RunningServer> {
    let server = |_| RunningServer::start(&ServerOptions::new(switch.listen_addr(), any_port())).unwrap();
    let mut servers: Vec<RunningServer> = (0..count).map(server).collect();
    servers.sort_by_key(RunningServer::udp_addr);
    servers
}

fn on_ranks(
    switch: &RunningSwitch,
    protocol: &'static Protocol,
    job: &str,
    world_size: u16,
    work: impl Fn(&Group, u16) + Sync,
) {
    thread::scope(|scope| {
        for rank in 0..world_size {
            let work = &work;
            scope.spawn(move || {
                let group = Group::connect(&connect_options(switch.listen_addr(), protocol, job, rank, world_size));
                work(&group.expect("the rank joins"), rank);
            });
        }
    });
}

#[test]
fn servers_sum_what_does_not_fit_the_switch_of_several_jobs_at_once() {
    for aggregators in [0, 16, 4096] {
        let switch = switch_with(served(), aggregators);
        let servers = servers(&switch, 2);
        let addrs: Vec<SocketAddr> = servers.iter().map(RunningServer::udp_addr).collect();
        for protocol in served() {
            thread::scope(|scope| {
                for (job, world_size) in [("a", 2), ("b", 3)] {
                    let (switch, addrs) = (&switch, &addrs);
                    scope.spawn(move || {
                        on_ranks(switch, protocol, job, world_size, |group, rank| {
                            assert_eq!(group.info().servers, *addrs);
                            sum_many_sizes(group, rank, PATIENCE);
                            let host = group.stats().unwrap().host;
                            let (there, here) = (host.blocks_in_network, host.blocks_at_hosts);
                            assert!(there + here > 0);
                            assert!(aggregators > 0 || there == 0, "{there} blocks in a switch without room");
                            assert!(aggregators > 0 || here > 0);
                        });
                    });
                }
            });
        }
        drop(servers);
        // The next job has its servers with its ranks.
        for protocol in served() {
            on_ranks(&switch, protocol, "without", 3, |group, rank| {
                assert!(group.info().servers.is_empty());
                sum_many_sizes(group, rank, PATIENCE);
            });
        }
        let status = client::status(switch.listen_addr()).unwrap();
        assert!(status.switch.shared.iter().all(|shared| shared.slots_in_use == 0));
    }
}

#[test]
fn every_rank_names_a_server_that_ends() {
    let switch = switch_with(served(), 16);
    for protocol in served() {
        let mut servers = servers(&switch, 2);
        let gone = servers[1].udp_addr();
        let ending = Mutex::new(servers.pop());
        let met = Barrier::new(2);
        on_ranks(&switch, protocol, "without", 2, |group, rank| {
            sum_many_sizes(group, rank, PATIENCE);
            met.wait();
            if rank == 0 {
                ending.lock().unwrap().take().unwrap().stop();
            }
            met.wait();
            let failed = group.allreduce_in_place(&mut vec![1i32; 200_000], ReduceOp::Sum, AGES).unwrap_err();
            let GroupError::PeerLost { failure: news, .. } = &failed else { panic!("{failed}") };
            assert_eq!(news.servers(), [ServerId(1)]);
            assert!(failed.to_string().contains(&format!("server 1 ({gone}) is gone")), "{failed}");
            met.wait();
        });
    }
}
