//! Ranks and switches that die: who is told, at every level, and what comes free.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::slice;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tributary_control::Timers;
use tributary_net::challenge;
use tributary_net::client::HttpRendezvous;
use tributary_net::group::GroupError;
use tributary_net::rendezvous::Rendezvous;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

use crate::levels::setup::{in_the_middle, jobs, on_ranks, options, switch, until_empty};
use crate::support::{PATIENCE, join_request};

fn sentences(errors: Vec<Option<GroupError>>, begun: Instant) -> Vec<String> {
    let elapsed = begun.elapsed();
    assert!(elapsed < PATIENCE / 2, "{elapsed:?}: nobody was told");
    errors.into_iter().map(|error| error.expect("it tried").to_string()).collect()
}

/// A rank that joins, keeps its watch, and contributes nothing. Its end is the end of the connection.
fn mute(switch: SocketAddr, job: &str, rank: u16, world_size: u16) -> TcpStream {
    let rendezvous = HttpRendezvous::new(switch).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let request = join_request(protocols::named("switchml").unwrap(), job, rank, world_size, &udp);
    let incarnation = rendezvous.incarnation().unwrap();
    let answer =
        challenge::answering(slice::from_ref(&udp), incarnation, || rendezvous.join(&request)).unwrap().unwrap();
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
    for (level, dies_at) in [&below, &other, &middle, &root].iter().enumerate() {
        let job = format!("dies-{level}");
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
fn the_end_of_the_switch_at_the_top_is_reported_with_its_address_at_every_level() {
    let root = switch(None);
    let (middle, other) = (switch(Some(&root)), switch(Some(&root)));
    let below = switch(Some(&middle));
    let addrs = [&below, &other, &middle, &below].map(RunningSwitch::listen_addr);
    let (parent, begun) = (root.listen_addr(), Instant::now());
    let errors = in_the_middle(&addrs, None, PATIENCE, || root.stop());
    for sentence in sentences(errors, begun) {
        let wanted = format!("the switch above, {parent}, is gone: its process ended or it was cut off");
        assert!(sentence.ends_with(&wanted), "{sentence}");
    }
    until_empty(&[&below, &other, &middle]);
}

#[test]
fn the_end_of_a_racks_switch_is_reported_with_its_ranks_in_the_other_racks() {
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
    assert_eq!(jobs(&racks[1])[0].parent.as_ref().unwrap().state, "present");
    let [a, b] = racks;
    a.stop();
    until_empty(&[&b, &root]);
    drop(groups);
}
