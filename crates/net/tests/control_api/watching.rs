//! Members that go, or stand still: who is told, and who is not lost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;

use tributary_control::Timers;
use tributary_net::client;
use tributary_net::rendezvous::{Departed, Gone, JoinAnswer, Rendezvous, Watched};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_proto::contract::time::Span;

use crate::control_api::setup::{Worker, any_port, eventually, join_all, switch};

#[test]
fn a_member_whose_connection_closes_and_that_falls_silent_is_reported_to_those_who_watch() {
    // A lease that no test outlives: only the connection can show it.
    let timers = Timers { lease: Span::from_secs_f64(3_600.0), ..Timers::default() };
    let switch = RunningSwitch::start(&SwitchOptions { timers, ..SwitchOptions::new(any_port()) }).unwrap();
    let mut workers: Vec<Worker> = (0..3).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    let answer = join_all(&workers).remove(0).unwrap();
    let (id, key) = (answer.job_id, answer.key);
    let doomed = begin_watch(switch.listen_addr(), &answer, 2);
    // The kernel closes all that a process has.
    let dying = workers.pop();
    let lost = Gone { rank: 2, completed: None };
    let left = Gone { rank: 1, completed: Some(0) };
    let gone = |members: &[Gone]| Departed { members: members.to_vec(), ..Departed::default() };
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (answer, workers) = (&answer, &workers);
        scope.spawn(move || {
            while is_done.recv_timeout(Duration::from_millis(300)) == Err(RecvTimeoutError::Timeout) {
                workers[0].ping(answer);
            }
        });
        let watching = scope.spawn(|| workers[0].watch(id, key, 0, &gone(&[])));
        // Before the process ends, its watch must have begun.
        thread::sleep(Duration::from_millis(200));
        drop((doomed, dying));
        assert_eq!(watching.join().unwrap(), Watched::Gone(gone(&[lost])));
        workers[1].rendezvous.leave(id, key, 1, Some(0));
        assert_eq!(workers[0].watch(id, key, 0, &gone(&[lost])), Watched::Gone(gone(&[left, lost])));
        workers[0].rendezvous.leave(id, key, 0, Some(0));
        drop(done);
    });
    assert_eq!(workers[0].watch(id, key, 0, &gone(&[])), Watched::Unknown);
    drop(switch);
    assert!(matches!(workers[0].watch(id, key, 0, &gone(&[])), Watched::Unreachable(_)));
}

/// It is not lost by its silence: its lease and its connection stand.
#[test]
fn a_member_that_leaves_as_lost_is_reported_as_lost() {
    let switch = switch();
    let workers: Vec<Worker> = (0..2).map(|rank| Worker::new(&switch, "a", rank, 2)).collect();
    let answer = join_all(&workers).remove(0).unwrap();
    let (id, key) = (answer.job_id, answer.key);
    workers[1].ping(&answer);
    workers[1].rendezvous.leave(id, key, 1, None);
    let members = vec![Gone { rank: 1, completed: None }];
    let gone = Departed { members, ..Departed::default() };
    assert_eq!(workers[0].watch(id, key, 0, &Departed::default()), Watched::Gone(gone));
    assert_eq!(client::status(switch.listen_addr()).unwrap().jobs[0].members[1].state, "lost");
}

/// A watch of a member of job `a`, whose connection is the caller's.
fn begin_watch(switch: SocketAddr, answer: &JoinAnswer, rank: u16) -> TcpStream {
    let (id, key) = (answer.job_id.0, answer.key.0);
    let body = format!(r#"{{"job_id":{id},"key":"{key:016x}","rank":{rank},"gone":{{"left":[],"lost":[]}}}}"#);
    let head = format!("POST /jobs/a/watch HTTP/1.1\r\nHost: switch\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut watch = TcpStream::connect(switch).unwrap();
    watch.write_all((head + &body).as_bytes()).unwrap();
    watch
}

/// Longer than a member whose end is seen in two ways has.
const STALL_S: f64 = 2.5;

/// A process that is stopped while its watch is answered: it sends nothing and closes nothing. If `cut`, something on the
/// way has closed its connection, too.
fn stall_while_a_watch_is_answered(cut: bool) {
    let switch = switch();
    let workers: Vec<Worker> = (0..3).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    let answer = join_all(&workers).remove(0).unwrap();
    let (id, key, addr) = (answer.job_id, answer.key, switch.listen_addr());
    let mut watch = begin_watch(addr, &answer, 1);
    workers[1].ping(&answer);
    // That somebody has left answers it, as its time's end would.
    thread::sleep(Duration::from_millis(100));
    workers[2].rendezvous.leave(id, key, 2, Some(0));
    let mut news = String::new();
    watch.read_to_string(&mut news).unwrap();
    assert!(news.contains(r#""left":[{"rank":2,"completed":0}]"#), "{news}");
    let watch = (!cut).then_some(watch);
    let member = || client::status(addr).unwrap().jobs[0].members[1].clone();
    eventually("the rank has been silent for long", || {
        workers[0].ping(&answer);
        member().last_seen_s_ago.is_some_and(|silent| silent > STALL_S)
    });
    assert_eq!(member().state, "present");
    drop(watch);
}

#[test]
fn a_rank_that_stands_still_while_its_watch_is_answered_is_not_lost() {
    stall_while_a_watch_is_answered(false);
}

#[test]
fn a_rank_that_stands_still_and_whose_connection_was_cut_is_not_lost_while_its_host_answers() {
    stall_while_a_watch_is_answered(true);
}
