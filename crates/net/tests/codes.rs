//! Sums of codes over real sockets on the loopback interface, also where packets are lost and doubled on the way: within
//! their bounds, and the same bits on every rank, on any way and under every protocol of trees that has codes.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::levels::setup::{on_ranks, switch};
use crate::support::{LocalSwitch, PATIENCE, on_every_rank};
use tributary_net::group::{ConnectOptions, Group};
use tributary_net::rendezvous::{Departed, JoinAnswer, JoinError, JoinRequest, Rendezvous, Standing, Watching};
use tributary_net::shard::Shard;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

const WORLD_SIZE: u16 = 3;
/// Of several blocks; the last one is not full.
const ELEMENTS: usize = 60_007;
/// Elements of four bytes in a packet, under each protocol.
const PER_PACKET: u16 = 256;

type Given<'a> = &'a [(&'a str, &'a str)];

const CODES: [Given<'static>; 3] =
    [&[("numbers", "int8")], &[("numbers", "int8"), ("down", "16")], &[("numbers", "thc4")]];

/// The protocols of trees whose jobs choose how floats are summed.
fn able() -> impl Iterator<Item = &'static Protocol> {
    let able = |protocol: &&'static Protocol| {
        protocol.options.specs.contains(&Numbers::OPTION) && protocol.placement == Placement::Trees
    };
    protocols::ALL.iter().copied().filter(able)
}

fn choose(options: &mut ConnectOptions, protocol: &'static Protocol, given: Given<'_>) {
    let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    (options.protocol, options.options) = (protocol, protocol.options.read(&given).unwrap());
    options.elements_per_packet = Some(PER_PACKET);
}

/// Between -1 and 1, and of other magnitudes in other blocks.
fn value(rank: u16, i: usize) -> f32 {
    (i as f32 * 0.37 + f32::from(rank) * 1.1).sin() * 2f32.powi((i / 30_000) as i32)
}

fn sum(group: &Group, rank: u16) -> Vec<f32> {
    let mut data: Vec<f32> = (0..ELEMENTS).map(|i| value(rank, i)).collect();
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    data
}

fn bits(sum: &[f32]) -> Vec<u32> {
    sum.iter().map(|x| x.to_bits()).collect()
}

/// All ranks have the same bits, and these are as near to the sum as the pages say: with codes of 8 bits each element is
/// within `(n + d) 2^m / 2q`, where the range `2^m` is at most 4 and the step `d` at most `n`; with codes of 4 bits the
/// whole tensor errs by 0.0203 of the ranks' squares.
fn check(sums: &[Vec<f32>], given: Given<'_>) {
    assert!(sums.iter().all(|sum| bits(sum) == bits(&sums[0])), "{given:?}: ranks have other bits");
    let (mut errors, mut squares) = (0.0, 0.0);
    for (i, &sum) in sums[0].iter().enumerate() {
        let each = || (0..WORLD_SIZE).map(|rank| f64::from(value(rank, i)));
        let error = (f64::from(sum) - each().sum::<f64>()).abs();
        let bound = 2.0 * f64::from(WORLD_SIZE) * 4.0 / (2.0 * 127.0);
        assert!(given[0].1 != "int8" || error <= bound, "{given:?}: element {i} errs by {error}");
        errors += error.powi(2);
        squares += each().map(|x| x.powi(2)).sum::<f64>();
    }
    assert!(errors > 0.0 && errors < 0.03 * squares, "{given:?}: {}", errors / squares);
}

/// One rank's way to the switch and back, on which one packet of eleven is lost and one of eleven comes twice.
struct BadWay {
    addr: SocketAddr,
    lost: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BadWay {
    fn between(worker: SocketAddr, switch: SocketAddr) -> BadWay {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let addr = socket.local_addr().unwrap();
        let (lost, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ended) = (Arc::clone(&lost), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            let (mut packet, mut random) = ([0; 65_536], 0x5eed_u32 + u32::from(addr.port()));
            while !ended.load(Ordering::Relaxed) {
                let (len, from) = match socket.recv_from(&mut packet) {
                    Ok(came) => came,
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                    // A socket that has closed says so to the next call.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                    Err(error) => panic!("the way ends: {error}"),
                };
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let copies = match (random >> 16) % 11 {
                    0 => 0,
                    1 => 2,
                    _ => 1,
                };
                counted.fetch_add(u64::from(copies == 0), Ordering::Relaxed);
                let to = if from == worker { switch } else { worker };
                // What the system does not take is lost, too.
                (0..copies).for_each(|_| drop(socket.send_to(&packet[..len], to)));
            }
        });
        BadWay { addr, lost, ends, thread: Some(thread) }
    }
}

impl Drop for BadWay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || thread::panicking(), "the way failed");
        }
    }
}

/// A switch at the end of bad ways: each rank knows its way for the switch, and the switch the way for the rank.
struct Behind {
    switch: Arc<LocalSwitch>,
    ways: Mutex<Vec<BadWay>>,
}

impl Rendezvous for Behind {
    fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, JoinError> {
        let way = BadWay::between(request.udp, self.switch.shards[0].udp_addr());
        let udp = way.addr;
        self.ways.lock().unwrap().push(way);
        let answer = self.switch.join(&JoinRequest { udp, ..request.clone() })?;
        Ok(JoinAnswer { shards: vec![udp], ..answer })
    }
    fn leave(&self, job: JobId, key: JobKey, rank: u16, completed: Option<u64>) {
        self.switch.leave(job, key, rank, completed);
    }
    fn standing(&self, job: JobId, key: JobKey) -> Standing {
        self.switch.standing(job, key)
    }
    fn watch<'a>(&'a self, job: JobId, key: JobKey, rank: u16, known: &'a Departed) -> Watching<'a> {
        self.switch.watch(job, key, rank, known)
    }
}

/// The sums of all ranks on bad ways, and how many packets were lost.
fn on_bad_ways(protocol: &'static Protocol, given: Given<'_>) -> (Vec<Vec<f32>>, u64) {
    let behind = Arc::new(Behind { switch: LocalSwitch::start(1), ways: Default::default() });
    let sums = thread::scope(|scope| {
        let rank = |rank| {
            let behind = Arc::clone(&behind);
            scope.spawn(move || {
                let mut options = behind.switch.options("bad", rank, WORLD_SIZE);
                choose(&mut options, protocol, given);
                let rendezvous: Arc<dyn Rendezvous> = behind;
                let group = Group::connect_through(&options, rendezvous).expect("the rank joins");
                sum(&group, rank)
            })
        };
        let threads: Vec<_> = (0..WORLD_SIZE).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    });
    let lost = behind.ways.lock().unwrap().iter().map(|way| way.lost.load(Ordering::Relaxed)).sum();
    (sums, lost)
}

#[test]
fn codes_are_summed_to_the_same_bits_under_each_protocol_and_whatever_the_way_loses() {
    assert!(able().count() > 1);
    let good = LocalSwitch::start(1);
    for given in CODES {
        let mut known: Option<Vec<u32>> = None;
        for protocol in able() {
            let job = format!("{} {given:?}", protocol.name);
            let adjust = |options: &mut ConnectOptions| choose(options, protocol, given);
            let sums = on_every_rank(&good, &job, WORLD_SIZE, adjust, |group, rank| sum(&group, rank));
            check(&sums, given);
            let known = known.get_or_insert_with(|| bits(&sums[0]));
            assert!(*known == bits(&sums[0]), "{job}: another protocol has other bits");
            let (sums, lost) = on_bad_ways(protocol, given);
            assert!(lost > 0);
            assert!(sums.iter().all(|sum| *known == bits(sum)), "{job}: loss shows");
        }
    }
}

#[test]
fn codes_are_summed_in_levels() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    for protocol in able() {
        for given in CODES {
            let adjust = |options: &mut ConnectOptions| choose(options, protocol, given);
            let at = [Some(&racks[0]), Some(&racks[1]), Some(&racks[0])];
            let job = format!("levels-{}", protocol.name);
            let sums = on_ranks(&at, &job, PATIENCE, adjust, |group, rank| sum(&group.unwrap(), rank));
            check(&sums, given);
        }
    }
}
