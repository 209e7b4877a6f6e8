//! Switches in levels, each a whole switch of this process: workers name the switch of their rack, and that is all.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tributary_control::Timers;
use tributary_net::challenge;
use tributary_net::client::{self, HttpRendezvous};
use tributary_net::group::{ConnectError, ConnectOptions, Group, GroupError};
use tributary_net::rendezvous::{JoinRequest, Rendezvous};
use tributary_net::status::JobStatus;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

/// No test waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
/// For what must fail.
const BRIEF: Duration = Duration::from_secs(2);

fn options(parent: Option<&RunningSwitch>) -> SwitchOptions {
    let any = SwitchOptions::new("127.0.0.1:0".parse().unwrap());
    SwitchOptions { parent: parent.map(RunningSwitch::listen_addr), ..any }
}

fn switch(parent: Option<&RunningSwitch>) -> RunningSwitch {
    RunningSwitch::start(&options(parent)).unwrap()
}

fn worker(switch: SocketAddr, job: &str, rank: u16, world: u16, timeout: Duration) -> ConnectOptions {
    ConnectOptions {
        switch: switch.to_string(),
        job: job.to_string(),
        rank,
        world,
        timeout,
        protocol: protocols::named("switchml").unwrap(),
        options: protocols::named("switchml").unwrap().options.defaults(),
        elements_per_packet: None,
        slots: None,
        trees: None,
    }
}

/// Runs `work` on every rank, each on a thread; `switches[rank]` is the switch that the rank names.
fn on_ranks<T: Send>(
    switches: &[Option<&RunningSwitch>],
    job: &str,
    timeout: Duration,
    adjust: impl Fn(&mut ConnectOptions) + Sync,
    work: impl Fn(Result<Group, ConnectError>, u16) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let present = switches.iter().enumerate().filter_map(|(rank, switch)| Some((rank as u16, (*switch)?)));
        let threads = present.map(|(rank, switch)| {
            let (adjust, work) = (&adjust, &work);
            scope.spawn(move || {
                let mut options = worker(switch.listen_addr(), job, rank, switches.len() as u16, timeout);
                adjust(&mut options);
                work(Group::connect(&options), rank)
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    })
}

/// What rank `rank` brings at place `i`: floats that do not sum exactly.
fn float(rank: usize, i: usize) -> f32 {
    ((rank * 7919 + i * 104_729) % 20_011) as f32 / 7.0 - 1_000.0
}

fn integer(rank: usize, i: usize) -> i32 {
    (rank as i32 + 1).wrapping_mul(i as i32).wrapping_mul(40_503)
}

fn reduce<T: Element>(group: &Group, len: usize, value: impl Fn(usize) -> T) -> Vec<T> {
    let mut data: Vec<T> = (0..len).map(value).collect();
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    data
}

/// All ranks sum floats and integers; checks both.
fn check_sums(switches: &[&RunningSwitch], job: &str) {
    const LEN: usize = 100_003;
    let (switches, world) = (switches.iter().map(|&switch| Some(switch)).collect::<Vec<_>>(), switches.len());
    let sums = on_ranks(
        &switches,
        job,
        PATIENCE,
        |_| (),
        |group, rank| {
            let (group, rank) = (group.unwrap(), usize::from(rank));
            let floats = reduce(&group, LEN, |i| float(rank, i));
            let integers = reduce(&group, LEN, |i| integer(rank, i));
            (floats.iter().map(|value| value.to_bits()).collect::<Vec<u32>>(), integers)
        },
    );
    let (floats, integers) = &sums[0];
    assert!(sums.iter().all(|sum| sum == &sums[0]), "all ranks have the same bits");
    for i in 0..LEN {
        assert_eq!(integers[i], (0..world).fold(0i32, |sum, rank| sum.wrapping_add(integer(rank, i))));
        let exact: f64 = (0..world).map(|rank| f64::from(float(rank, i))).sum();
        // Each of the additions between a rank and the result, at most ten here, rounds once.
        let magnitude: f64 = (0..world).map(|rank| f64::from(float(rank, i)).abs()).sum();
        let bound = 10.0 * magnitude * f64::from(f32::EPSILON) / 2.0;
        assert!((f64::from(f32::from_bits(floats[i])) - exact).abs() <= bound, "element {i}");
    }
}

fn jobs(switch: &RunningSwitch) -> Vec<JobStatus> {
    client::status(switch.listen_addr()).unwrap().jobs
}

/// Waits until the switches hold no memory for any job.
fn until_empty(switches: &[&RunningSwitch]) {
    let end = Instant::now() + PATIENCE;
    for switch in switches {
        while client::status(switch.listen_addr()).unwrap().switch.memory_used_bytes > 0 {
            assert!(Instant::now() < end, "slots never came back: {:?}", jobs(switch));
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn racks_of_any_size_sum_the_same_bits_on_every_rank() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let (a, b) = (&racks[0], &racks[1]);
    check_sums(&[a, b], "one-each");
    check_sums(&[b, a, a, b, a], "mixed");
    check_sums(&[a, a, a], "one-rack-only");
    check_sums(&[&root, a, &root, b], "workers-at-the-root-too");
    until_empty(&[&root, a, b]);
}

#[test]
fn three_levels_and_several_shards_sum_exactly() {
    let with_shards =
        |parent: Option<&RunningSwitch>| RunningSwitch::start(&SwitchOptions { shards: 2, ..options(parent) }).unwrap();
    let root = with_shards(None);
    let (middle, other) = (with_shards(Some(&root)), with_shards(Some(&root)));
    let (a, b) = (with_shards(Some(&middle)), with_shards(Some(&middle)));
    check_sums(&[&a, &b, &other, &a, &b, &middle], "deep");
    until_empty(&[&root, &middle, &other, &a, &b]);
}

#[test]
fn hosts_that_sum_by_themselves_find_each_other_across_racks() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let switches = [Some(&racks[0]), Some(&racks[1]), Some(&racks[0])];
    let ring = |options: &mut ConnectOptions| {
        options.protocol = protocols::named("ring").unwrap();
        options.options = options.protocol.options.defaults();
    };
    let sums = on_ranks(&switches, "ring", PATIENCE, ring, |group, rank| {
        reduce(&group.unwrap(), 10_000, |i| integer(usize::from(rank), i))
    });
    assert!(sums.iter().all(|sum| sum == &sums[0]));
    assert_eq!(sums[0][7], (0..3).fold(0i32, |sum, rank| sum.wrapping_add(integer(rank, 7))));
}

#[test]
fn every_rank_hears_which_rank_of_another_rack_never_came() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let (a, b) = (Some(&racks[0]), Some(&racks[1]));
    let begun = Instant::now();
    let errors = on_ranks(&[a, b, a, None, b], "absent", BRIEF, |_| (), |group, _| group.map(|_| ()).unwrap_err());
    for error in errors {
        assert!(error.to_string().starts_with("rank 3 of 5 did not come within 2 s"), "{error}");
    }
    assert!(begun.elapsed() < PATIENCE / 2);
    assert!(jobs(&root).is_empty() && jobs(&racks[0]).is_empty() && jobs(&racks[1]).is_empty());
}

#[test]
fn ranks_of_different_racks_that_differ_are_told_who_says_what() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let odd = |options: &mut ConnectOptions| {
        if options.rank == 1 {
            options.slots = Some(64);
        } else {
            options.slots = Some(32);
        }
    };
    let errors = on_ranks(&[Some(&racks[0]), Some(&racks[1])], "differ", PATIENCE, odd, |group, _| {
        group.map(|_| ()).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("disagree on the number of slots") && error.contains("rank 1 says 64"), "{error}");
    }
}

#[test]
fn what_the_switch_above_refuses_is_one_sentence_at_the_worker() {
    let full = RunningSwitch::start(&SwitchOptions { memory_bytes: 1 << 10, ..options(None) }).unwrap();
    let shards = RunningSwitch::start(&SwitchOptions { shards: 2, ..options(None) }).unwrap();
    let gone = switch(None);
    let below = [switch(Some(&full)), switch(Some(&shards)), switch(Some(&gone))];
    let above = gone.listen_addr();
    gone.stop();
    let say = |switch: &RunningSwitch| {
        let error = Group::connect(&worker(switch.listen_addr(), "refused", 0, 2, PATIENCE))
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let error = say(&below[0]);
    assert!(error.contains(&format!("the switch above, {}, says: the switch is full", full.listen_addr())), "{error}");
    let error = say(&below[1]);
    assert!(error.contains("has 1 shards and the one above it 2") && error.contains("--cores"), "{error}");
    let error = say(&below[2]);
    assert!(error.contains(&format!("of the switch above: nothing listens at {above}")), "{error}");
}

/// All ranks connect, sum once, and, when `act` is done, try to sum again; `silent` does not. The errors by rank.
fn in_the_middle(
    switches: &[SocketAddr],
    silent: Option<u16>,
    timeout: Duration,
    act: impl FnOnce(),
) -> Vec<Option<GroupError>> {
    let world = switches.len() as u16;
    let (ready, acted) = (Barrier::new(switches.len() + 1), Barrier::new(switches.len() + 1));
    let failing = Barrier::new(switches.len());
    thread::scope(|scope| {
        let (ready, acted, failing) = (&ready, &acted, &failing);
        let rank = |(rank, &addr): (usize, &SocketAddr)| {
            let rank = rank as u16;
            scope.spawn(move || {
                let group = Group::connect(&worker(addr, "middle", rank, world, PATIENCE)).unwrap();
                let mut data = vec![1f32; 5_000];
                group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                ready.wait();
                acted.wait();
                let failed =
                    (silent != Some(rank)).then(|| group.allreduce_in_place(&mut data, ReduceOp::Sum, timeout));
                // Nobody leaves before all have failed, so that none is told of that instead.
                failing.wait();
                failed.map(Result::unwrap_err)
            })
        };
        let threads: Vec<_> = switches.iter().enumerate().map(rank).collect();
        ready.wait();
        act();
        acted.wait();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn cause(error: &GroupError) -> &CollectiveError {
    match error {
        GroupError::Failed { cause, .. } => cause,
        other => panic!("{other}"),
    }
}

#[test]
fn a_rank_that_does_not_contribute_is_named_in_the_other_rack() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let [a, b] = racks.each_ref().map(RunningSwitch::listen_addr);
    for error in in_the_middle(&[a, b, a, b], Some(3), BRIEF, || ()).iter().flatten() {
        let CollectiveError::Missing { missing, .. } = cause(error) else { panic!("{error}") };
        assert_eq!(missing[..], [Rank(3)]);
    }
    until_empty(&[&root, &racks[0], &racks[1]]);
}

/// What each rank was told, well before the three quarters of its timeout after which it asks by itself.
fn sentences(errors: Vec<Option<GroupError>>, begun: Instant) -> Vec<String> {
    let elapsed = begun.elapsed();
    assert!(elapsed < PATIENCE / 2, "{elapsed:?}: nobody was told");
    errors.into_iter().map(|error| error.expect("it tried").to_string()).collect()
}

/// A rank that joins, keeps its watch, and contributes nothing. Its end is the end of the connection.
fn mute(switch: SocketAddr, job: &str, rank: u16, world: u16) -> TcpStream {
    let rendezvous = HttpRendezvous::new(switch).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let request = JoinRequest {
        job: job.to_string(),
        rank,
        world,
        protocol: protocols::named("switchml").unwrap(),
        options: protocols::named("switchml").unwrap().options.defaults(),
        udp: udp.local_addr().unwrap(),
        elements_per_packet: None,
        max_elements_per_packet: 360,
        slots: None,
        trees: None,
        suggested_slots: 64,
        timeout: PATIENCE,
    };
    let incarnation = rendezvous.incarnation().unwrap();
    let answer = challenge::answering(&udp, incarnation, || rendezvous.join(&request)).unwrap().unwrap();
    let (id, key) = (answer.job_id.0, answer.key.0);
    let body = format!(r#"{{"job_id":{id},"key":"{key:016x}","rank":{rank},"gone":{{"left":[],"lost":[]}}}}"#);
    let head = format!("POST /jobs/{job}/watch HTTP/1.1\r\nHost: switch\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut watch = TcpStream::connect(switch).unwrap();
    watch.write_all((head + &body).as_bytes()).unwrap();
    watch
}

#[test]
fn a_rank_that_dies_is_named_at_every_switch_of_three_levels() {
    let root = switch(None);
    let (middle, other) = (switch(Some(&root)), switch(Some(&root)));
    let below = switch(Some(&middle));
    let begun = Instant::now();
    for (place, dies_at) in [&below, &other, &middle, &root].iter().enumerate() {
        let job = format!("dies-{place}");
        let switches = [Some(&below), Some(&other), Some(&middle), Some(&root), None];
        let failing = Barrier::new(4);
        let errors = thread::scope(|scope| {
            let (job, failing) = (&job, &failing);
            let mute = scope.spawn(move || mute(dies_at.listen_addr(), job, 4, 5));
            let ranks = scope.spawn(move || {
                on_ranks(
                    &switches,
                    job,
                    PATIENCE,
                    |options| options.elements_per_packet = Some(360),
                    |group, _| {
                        let group = group.unwrap();
                        let failed = group.allreduce_in_place(&mut [1f32; 5_000], ReduceOp::Sum, PATIENCE);
                        failing.wait();
                        failed.err()
                    },
                )
            });
            let watch = mute.join().unwrap();
            // The ranks are at work by then, or begin after the death; they hear the same.
            thread::sleep(Duration::from_millis(200));
            drop(watch);
            ranks.join().unwrap()
        });
        for sentence in sentences(errors, begun) {
            assert!(sentence.ends_with("rank 4 is gone: its process ended or its host was cut off"), "{sentence}");
        }
    }
}

#[test]
fn the_end_of_the_switch_at_the_top_is_told_by_its_address_at_every_level() {
    let root = switch(None);
    let (middle, other) = (switch(Some(&root)), switch(Some(&root)));
    let below = switch(Some(&middle));
    let addrs = [&below, &other, &middle, &below].map(RunningSwitch::listen_addr);
    let (above, begun) = (root.listen_addr(), Instant::now());
    let errors = in_the_middle(&addrs, None, PATIENCE, || root.stop());
    for sentence in sentences(errors, begun) {
        let wanted = format!("the switch above, {above}, is gone: its process ended or it was cut off");
        assert!(sentence.ends_with(&wanted), "{sentence}");
    }
    until_empty(&[&below, &other, &middle]);
}

#[test]
fn the_end_of_a_racks_switch_is_told_with_its_ranks_in_the_other_racks() {
    let root = switch(None);
    let (there, here) = (switch(Some(&root)), switch(Some(&root)));
    let under = switch(Some(&there));
    let addrs = [&here, &there, &here, &under].map(RunningSwitch::listen_addr);
    let (gone, begun) = (there.listen_addr(), Instant::now());
    let errors = in_the_middle(&addrs, None, PATIENCE, || there.stop());
    let sentences = sentences(errors, begun);
    for rank in [0, 2] {
        let wanted = format!("the switch {gone} is gone, and ranks 1, 3 with it: its process ended or it was cut off");
        assert!(sentences[rank].ends_with(&wanted), "{}", sentences[rank]);
    }
    // Its own rank finds that it does not answer, or hears its last word.
    assert!(sentences[1].contains(&format!(": the switch {gone} ")), "{}", sentences[1]);
    assert!(sentences[3].contains(&format!("the switch above, {gone}, is gone")), "{}", sentences[3]);
    until_empty(&[&here, &under]);
}

#[test]
fn a_rack_that_vanishes_frees_the_slots_at_both_levels() {
    let quick = Timers { lease: Span::from_millis(3_000), grace: Span::from_millis(500), ..Timers::default() };
    let start = |parent: Option<&RunningSwitch>| {
        RunningSwitch::start(&SwitchOptions { timers: quick, ..options(parent) }).unwrap()
    };
    let root = start(None);
    let racks = [start(Some(&root)), start(Some(&root))];
    let groups = on_ranks(&[Some(&racks[0]), Some(&racks[1])], "vanish", PATIENCE, |_| (), |group, _| group.unwrap());
    assert!(jobs(&root)[0].switches.iter().all(|switch| switch.state == "present"));
    assert_eq!(jobs(&racks[1])[0].above.as_ref().unwrap().state, "present");
    let [a, b] = racks;
    a.stop();
    until_empty(&[&b, &root]);
    drop(groups);
}

#[test]
fn a_name_is_used_again_after_its_job_at_once() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    for _ in 0..5 {
        check_sums(&[&racks[0], &racks[1], &racks[1]], "again");
    }
}

#[test]
fn each_switch_says_who_is_below_whom() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let switches = [Some(&racks[0]), Some(&racks[1]), Some(&racks[0])];
    let groups = on_ranks(&switches, "shown", PATIENCE, |_| (), |group, _| group.unwrap());
    let status = client::status(racks[0].listen_addr()).unwrap();
    assert_eq!(status.switch.parent, Some(root.listen_addr()));
    assert_eq!(status.jobs[0].members.iter().map(|member| member.rank).collect::<Vec<_>>(), [0, 2]);
    let above = jobs(&root).remove(0);
    assert_eq!((above.world, above.members.len()), (3, 0));
    let below: Vec<_> = above.switches.iter().map(|switch| (switch.addr, switch.ranks.clone())).collect();
    assert_eq!(below, [(Some(racks[0].listen_addr()), vec![0, 2]), (Some(racks[1].listen_addr()), vec![1])]);
    assert_eq!(above.id, status.jobs[0].id, "one id at all levels");
    drop(groups);
}
