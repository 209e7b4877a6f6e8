//! Jobs with servers over real sockets: a switch, servers and workers in one process, on the loopback interface.

use std::net::{SocketAddr, UdpSocket};
use std::slice;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{connect_options, sum_many_sizes};
use tributary_net::challenge;
use tributary_net::client::{self, HttpRendezvous};
use tributary_net::group::{ConnectOptions, Group, GroupError};
use tributary_net::rendezvous::{JoinRequest, Rendezvous};
use tributary_net::server::{RunningServer, ServerError, ServerOptions};
use tributary_net::status::SwitchStatus;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::ids::ServerId;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};
use tributary_proto::protocols;

const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody waits for this in a test that passes.
const AGES: Duration = Duration::from_secs(3_600);

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn switch() -> RunningSwitch {
    RunningSwitch::start(&SwitchOptions { shards: 2, ..SwitchOptions::new(any_port()) }).unwrap()
}

fn server(switch: &RunningSwitch) -> RunningServer {
    RunningServer::start(&ServerOptions::new(switch.listen_addr(), any_port())).unwrap()
}

fn options(switch: &RunningSwitch, job: &str, rank: u16, world_size: u16) -> ConnectOptions {
    let protocol = protocols::named("ps").unwrap();
    ConnectOptions { timeout: PATIENCE, ..connect_options(switch.listen_addr(), protocol, job, rank, world_size) }
}

/// Runs `work` on every rank of a job, each on a thread of its own.
fn on_every_rank(switch: &RunningSwitch, job: &str, world_size: u16, work: impl Fn(Group, u16) + Sync) {
    thread::scope(|scope| {
        for rank in 0..world_size {
            let (options, work) = (options(switch, job, rank, world_size), &work);
            scope.spawn(move || work(Group::connect(&options).expect("the rank joins"), rank));
        }
    });
}

/// Reduce-scatters of several sizes, whose shards all-gathers bring together again.
fn shards_of_many_sizes(group: &Group, rank: u16, world_size: u16) {
    for shard in [0, 1, 65, 20_011] {
        let all = usize::from(world_size) * shard;
        let input: Vec<i32> = (0..all).map(|at| (i32::from(rank) + 1) * at as i32).collect();
        let (mut own, mut whole) = (vec![0; shard], vec![0; all]);
        group.reduce_scatter(&input, &mut own, ReduceOp::Sum, PATIENCE).unwrap();
        group.all_gather(&own, &mut whole, PATIENCE).unwrap();
        let ranks = i32::from(world_size * (world_size + 1) / 2);
        assert!(whole.iter().zip(0..).all(|(&sum, at)| sum == ranks * at), "{shard} elements of rank {rank}");
    }
}

/// Waits until the switch's state is as wanted.
fn until(switch: &RunningSwitch, what: &str, wanted: impl Fn(&SwitchStatus) -> bool) -> SwitchStatus {
    let start = Instant::now();
    loop {
        let status = client::status(switch.listen_addr()).unwrap();
        if wanted(&status) {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}: {status:#?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn servers_on_offer_sum_for_several_jobs_at_once_and_give_them_up_when_they_end() {
    let switch = switch();
    let servers: Vec<RunningServer> = (0..3).map(|_| server(&switch)).collect();
    let mut addrs: Vec<SocketAddr> = servers.iter().map(RunningServer::udp_addr).collect();
    addrs.sort();
    let met = Barrier::new(5);
    thread::scope(|scope| {
        for (job, world_size) in [("a", 3), ("b", 2)] {
            let (switch, met, addrs) = (&switch, &met, &addrs);
            scope.spawn(move || {
                on_every_rank(switch, job, world_size, |group, rank| {
                    met.wait();
                    sum_many_sizes(&group, rank, PATIENCE);
                    shards_of_many_sizes(&group, rank, world_size);
                    assert_eq!(group.info().slots % 3, 0);
                    if rank == 0 {
                        let status = client::status(switch.listen_addr()).unwrap();
                        let served: Vec<SocketAddr> = status.switch.servers.iter().map(|server| server.addr).collect();
                        assert_eq!(served, *addrs);
                        assert!(status.switch.servers.iter().all(|server| server.jobs.contains(&job.to_string())));
                        let own = status.jobs.iter().find(|found| found.name == job).unwrap();
                        assert_eq!(own.servers.iter().map(|server| server.addr).collect::<Vec<_>>(), *addrs);
                    }
                    met.wait();
                });
            });
        }
    });
    until(&switch, "idle servers", |status| status.switch.servers.iter().all(|server| server.jobs.is_empty()));
}

#[test]
fn without_servers_each_worker_is_one_besides() {
    let switch = switch();
    for world_size in [1, 4] {
        on_every_rank(&switch, &format!("{world_size}"), world_size, |group, rank| {
            sum_many_sizes(&group, rank, PATIENCE);
            shards_of_many_sizes(&group, rank, world_size);
            assert_eq!(group.info().slots % world_size, 0);
        });
    }
}

#[test]
fn every_rank_names_a_server_that_ends_and_the_next_job_does_without() {
    let switch = switch();
    let servers = [server(&switch), server(&switch)];
    let mut addrs: Vec<SocketAddr> = servers.iter().map(RunningServer::udp_addr).collect();
    addrs.sort();
    let [first, second] = servers;
    let gone = first.udp_addr();
    let number = addrs.iter().position(|&addr| addr == gone).unwrap() as u16;
    let ending = std::sync::Mutex::new(Some(first));
    let met = Barrier::new(2);
    on_every_rank(&switch, "without", 2, |group, rank| {
        sum_many_sizes(&group, rank, PATIENCE);
        met.wait();
        if rank == 0 {
            ending.lock().unwrap().take().unwrap().stop();
        }
        met.wait();
        for _ in 0..2 {
            let failed = group.allreduce_in_place(&mut vec![1i32; 200_000], ReduceOp::Sum, AGES).unwrap_err();
            let GroupError::PeerLost { failure: news, .. } = &failed else { panic!("{failed}") };
            assert_eq!(news.servers(), [ServerId(number)]);
            assert!(failed.to_string().contains(&format!("server {number} ({gone}) is gone")), "{failed}");
        }
        met.wait();
    });
    on_every_rank(&switch, "next", 2, |group, rank| sum_many_sizes(&group, rank, PATIENCE));
    drop(second);
    on_every_rank(&switch, "alone", 2, |group, rank| sum_many_sizes(&group, rank, PATIENCE));
}

#[test]
fn a_switch_that_is_started_again_finds_its_servers() {
    let first = switch();
    let listen = first.listen_addr();
    let server = server(&first);
    first.stop();
    let second = RunningSwitch::start(&SwitchOptions::new(listen)).unwrap();
    let addr = server.udp_addr();
    until(&second, "the server again", |status| status.switch.servers.iter().any(|server| server.addr == addr));
    on_every_rank(&second, "a", 2, |group, rank| sum_many_sizes(&group, rank, PATIENCE));
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let closed = std::net::TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let start = |switch, listen| match RunningServer::start(&ServerOptions::new(switch, listen)) {
        Ok(_) => panic!("it starts"),
        Err(error) => error,
    };
    let nobody = start(closed, any_port());
    assert!(matches!(nobody, ServerError::Switch(_)) && nobody.to_string().contains("nothing listens"), "{nobody}");
    let switch = switch();
    let taken = start(switch.listen_addr(), switch.shard_addrs()[1]);
    assert!(matches!(taken, ServerError::Open { .. }) && taken.to_string().contains("--listen"), "{taken}");
}

#[test]
fn a_member_that_floods_a_server_with_pings_is_answered_now_and_then() {
    const PINGS: u64 = 20_000;
    let switch = switch();
    let server = server(&switch);
    let udp = UdpSocket::bind(any_port()).unwrap();
    let ConnectOptions { protocol, options, .. } = options(&switch, "floods", 0, 1);
    let rendezvous = HttpRendezvous::new(switch.listen_addr()).unwrap();
    let request = JoinRequest {
        job: "floods".into(),
        rank: 0,
        world_size: 1,
        protocol,
        options,
        udp: udp.local_addr().unwrap(),
        core_ports: Vec::new(),
        elements_per_packet: None,
        max_elements_per_packet: 360,
        slots: None,
        suggested_slots: 64,
        trees: None,
        timeout: PATIENCE,
    };
    let incarnation = rendezvous.incarnation().unwrap();
    let answer =
        challenge::answering(slice::from_ref(&udp), incarnation, || rendezvous.join(&request)).unwrap().unwrap();
    assert_eq!(answer.servers, [server.udp_addr()]);
    let mut ping = [0; COMMON_LEN];
    Common { protocol: protocol.code, kind: kind::PING, job: answer.job_id, key: answer.key }.emit(&mut ping);
    udp.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let (start, mut answered, mut bytes) = (Instant::now(), 0, [0; 2048]);
    // The server may not know of the job yet.
    while answered == 0 {
        assert!(start.elapsed() < PATIENCE);
        udp.send_to(&ping, server.udp_addr()).unwrap();
        answered += u64::from(udp.recv(&mut bytes).is_ok());
    }
    let start = Instant::now();
    for _ in 0..PINGS / 100 {
        for _ in 0..100 {
            udp.send_to(&ping, server.udp_addr()).unwrap();
        }
        while udp.recv(&mut bytes).is_ok() {
            answered += 1;
        }
    }
    // 500 a second, and a thousand at once.
    let most = 1_001 + (500.0 * start.elapsed().as_secs_f64()) as u64 + 10;
    assert!(answered <= most, "{answered} of {PINGS} were answered, at most {most} may be");
}
