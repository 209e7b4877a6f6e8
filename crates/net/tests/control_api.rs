//! The control plane over real sockets: what members, operators and strangers get to hear from a switch.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tributary_control::Timers;
use tributary_net::challenge;
use tributary_net::client::{self, HttpRendezvous};
use tributary_net::rendezvous::{
    Departed, Gone, JoinAnswer, JoinError, JoinRequest, Rendezvous, Standing, SwitchPlace, Watched,
};
use tributary_net::switch_daemon::{RunningSwitch, StartError, SwitchOptions};
use tributary_proto::contract::ids::{ChildId, Rank};
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};
use tributary_proto::protocols;

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn switch() -> RunningSwitch {
    RunningSwitch::start(&SwitchOptions::new(any_port())).unwrap()
}

/// A worker process as the control plane sees one: a socket, an incarnation, a wish.
struct Worker {
    udp: UdpSocket,
    rendezvous: HttpRendezvous,
    request: JoinRequest,
}

impl Worker {
    fn new(switch: &RunningSwitch, job: &str, rank: u16, world: u16) -> Worker {
        let udp = UdpSocket::bind(any_port()).unwrap();
        let request = JoinRequest {
            job: job.into(),
            rank,
            world,
            protocol: protocols::named("ring").unwrap(),
            options: protocols::named("ring").unwrap().options.defaults(),
            udp: udp.local_addr().unwrap(),
            elements_per_packet: None,
            max_elements_per_packet: 360,
            slots: None,
            trees: None,
            suggested_slots: 64,
            timeout: Duration::from_secs(20),
        };
        Worker { udp, rendezvous: HttpRendezvous::new(switch.listen_addr()).unwrap(), request }
    }

    fn join(&self) -> Result<JoinAnswer, JoinError> {
        let incarnation = self.rendezvous.incarnation().unwrap();
        challenge::answering(&self.udp, incarnation, || self.rendezvous.join(&self.request)).unwrap()
    }

    /// One sign of life to every shard.
    fn ping(&self, answer: &JoinAnswer) {
        let mut packet = [0; COMMON_LEN];
        let common =
            Common { protocol: self.request.protocol.code, kind: kind::PING, job: answer.job_id, key: answer.key };
        common.emit(&mut packet);
        for shard in &answer.shards {
            self.udp.send_to(&packet, shard).unwrap();
        }
    }
}

fn join_all(workers: &[Worker]) -> Vec<Result<JoinAnswer, JoinError>> {
    thread::scope(|scope| {
        let joins: Vec<_> = workers.iter().map(|worker| scope.spawn(|| worker.join())).collect();
        joins.into_iter().map(|join| join.join().unwrap()).collect()
    })
}

/// Waits until the switch says what is expected of it.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < patience, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn raw(addr: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(addr: SocketAddr, path: &str) -> String {
    raw(addr, &format!("GET {path} HTTP/1.1\r\nHost: switch\r\n\r\n"))
}

fn post(addr: SocketAddr, path: &str, body: &str) -> String {
    raw(addr, &format!("POST {path} HTTP/1.1\r\nHost: switch\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

#[test]
fn ranks_that_join_are_told_the_same_and_where_the_others_are() {
    let switch = RunningSwitch::start(&SwitchOptions { shards: 2, ..SwitchOptions::new(any_port()) }).unwrap();
    let workers: Vec<Worker> = (0..3).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    let answers: Vec<JoinAnswer> = join_all(&workers).into_iter().map(Result::unwrap).collect();
    let peers: Vec<SocketAddr> = workers.iter().map(|worker| worker.udp.local_addr().unwrap()).collect();
    for (rank, answer) in (0..).map(Rank).zip(&answers) {
        assert_eq!(answer, &JoinAnswer { wid: ChildId::of_rank(rank), ..answers[0].clone() });
        assert_eq!(answer.switches, [SwitchPlace { addr: switch.listen_addr(), ranks: vec![0, 1, 2] }]);
        assert_eq!(answer.peers, peers);
        assert_eq!(answer.shards, switch.shard_addrs());
        assert_eq!((answer.slots, answer.elements_per_packet), (64, 360));
    }
    let status = client::status(switch.listen_addr()).unwrap();
    assert_eq!(status.jobs[0].state, "running");
    assert!(status.switch.memory_used_bytes > 0);
    for worker in &workers {
        let (id, key) = (answers[0].job_id, answers[0].key);
        assert_eq!(worker.rendezvous.standing(id, key), Standing::Installed);
        worker.rendezvous.leave(id, key, worker.request.rank);
    }
    let after = client::status(switch.listen_addr()).unwrap();
    assert_eq!((after.jobs.len(), after.switch.memory_used_bytes), (0, 0));
    assert_eq!(workers[0].rendezvous.standing(answers[0].job_id, answers[0].key), Standing::Unknown);
    switch.stop();
}

#[test]
fn a_member_whose_connection_closes_and_that_falls_silent_is_told_to_those_who_watch() {
    // A lease that no test outlives: only the connection can show it.
    let timers = Timers { lease: Span::from_secs_f64(3_600.0), ..Timers::default() };
    let switch = RunningSwitch::start(&SwitchOptions { timers, ..SwitchOptions::new(any_port()) }).unwrap();
    let mut workers: Vec<Worker> = (0..3).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    let answer = join_all(&workers).remove(0).unwrap();
    let (id, key) = (answer.job_id, answer.key);
    let doomed = begin_watch(switch.listen_addr(), &answer, 2);
    // The kernel closes all that a process has.
    let dying = workers.pop();
    let lost = Gone { rank: 2, left: false };
    let left = Gone { rank: 1, left: true };
    let gone = |members: &[Gone]| Departed { members: members.to_vec(), ..Departed::default() };
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (answer, workers) = (&answer, &workers);
        scope.spawn(move || {
            while is_done.recv_timeout(Duration::from_millis(300)) == Err(RecvTimeoutError::Timeout) {
                workers[0].ping(answer);
            }
        });
        let hears = scope.spawn(|| workers[0].rendezvous.watch(id, key, 0, &gone(&[])));
        // Before the process ends, its watch must have begun.
        thread::sleep(Duration::from_millis(200));
        drop((doomed, dying));
        assert_eq!(hears.join().unwrap(), Watched::Gone(gone(&[lost])));
        workers[1].rendezvous.leave(id, key, 1);
        assert_eq!(workers[0].rendezvous.watch(id, key, 0, &gone(&[lost])), Watched::Gone(gone(&[left, lost])));
        workers[0].rendezvous.leave(id, key, 0);
        drop(done);
    });
    assert_eq!(workers[0].rendezvous.watch(id, key, 0, &gone(&[])), Watched::Unknown);
    drop(switch);
    assert!(matches!(workers[0].rendezvous.watch(id, key, 0, &gone(&[])), Watched::Unreachable(_)));
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
    workers[2].rendezvous.leave(id, key, 2);
    let mut told = String::new();
    watch.read_to_string(&mut told).unwrap();
    assert!(told.contains(r#""left":[2]"#), "{told}");
    let watch = (!cut).then_some(watch);
    let member = || client::status(addr).unwrap().jobs[0].members[1].clone();
    eventually("the rank has been silent for long", || {
        workers[0].ping(&answer);
        member().heard_s_ago.is_some_and(|silent| silent > STALL_S)
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

fn refused(answer: Result<JoinAnswer, JoinError>) -> String {
    match answer {
        Err(JoinError::Refused(sentence)) => sentence,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn ranks_hear_who_did_not_come() {
    let switch = switch();
    let mut workers: Vec<Worker> = (0..2).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    for worker in &mut workers {
        worker.request.timeout = Duration::from_millis(300);
    }
    for answer in join_all(&workers) {
        let sentence = refused(answer);
        assert!(sentence.starts_with("rank 2 of 3 did not come within 0.3 s (job 'a')"), "{sentence}");
    }
    assert_eq!(client::status(switch.listen_addr()).unwrap().jobs, []);
}

#[test]
fn every_rank_hears_who_differs() {
    let switch = switch();
    let workers = [Worker::new(&switch, "a", 0, 3), Worker::new(&switch, "a", 1, 3), Worker::new(&switch, "a", 2, 4)];
    for answer in join_all(&workers) {
        let sentence = refused(answer);
        assert!(sentence.contains("disagree on the world size"), "{sentence}");
    }
}

#[test]
fn a_second_process_for_a_live_rank_is_refused_while_pings_keep_the_first_alive() {
    let switch = switch();
    let first = Worker::new(&switch, "a", 0, 1);
    let answer = first.join().unwrap();
    let second = Worker::new(&switch, "a", 0, 1);
    let sentence = thread::scope(|scope| {
        let second = scope.spawn(|| refused(second.join()));
        while !second.is_finished() {
            first.ping(&answer);
            thread::sleep(Duration::from_millis(50));
        }
        second.join().unwrap()
    });
    let holder = first.udp.local_addr().unwrap();
    assert!(sentence.contains(&format!("rank 0 of job 'a' is taken by a live process at {holder}")), "{sentence}");
    assert_eq!(first.rendezvous.standing(answer.job_id, answer.key), Standing::Installed);
}

#[test]
fn ranks_that_died_without_a_word_are_succeeded_by_those_that_start_again() {
    let switch = switch();
    let old: Vec<Worker> = (0..2).map(|rank| Worker::new(&switch, "a", rank, 2)).collect();
    let dead = join_all(&old).remove(0).unwrap();
    let new: Vec<Worker> = (0..2).map(|rank| Worker::new(&switch, "a", rank, 2)).collect();
    let alive = join_all(&new).remove(1).unwrap();
    assert_ne!(alive.job_id, dead.job_id);
    assert_eq!(old[0].rendezvous.standing(dead.job_id, dead.key), Standing::Unknown);
    assert_eq!(new[0].rendezvous.standing(alive.job_id, alive.key), Standing::Installed);
}

fn join_body(rank: u16, world: u16) -> String {
    format!(
        r#"{{"wire_version":2,"rank":{rank},"world":{world},"protocol":"ring","udp_port":{},"max_elements_per_packet":360,
        "suggested_slots":64,"incarnation":"00000000000000{rank:02x}","timeout_s":20}}"#,
        9000 + rank
    )
}

#[test]
fn a_protocol_that_a_switch_does_not_know_is_refused_with_a_sentence_also_from_a_switch_below() {
    let switch = switch();
    let rank = join_body(0, 2).replace("\"ring\"", "\"carrier-pigeon\"");
    let below = format!(
        r#"{{"wire_version":2,"incarnation":"0000000000000009","question":1,"shards":["127.0.0.1:9000"],"most_slots":64,
        "ranks":[{{"join":{rank},"udp":"127.0.0.1:9001","waited_s":0}}],"switches":[]}}"#
    );
    for (path, body) in [("/jobs/a/join", rank), ("/jobs/a/switches/join", below)] {
        let answer = post(switch.listen_addr(), path, &body);
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
        assert!(answer.contains("this switch knows no protocol 'carrier-pigeon'; it knows switchml, ring"), "{answer}");
    }
    assert!(client::status(switch.listen_addr()).unwrap().jobs.is_empty());
}

#[test]
fn a_process_that_goes_away_while_it_waits_is_no_member_any_more() {
    let switch = switch();
    let addr = switch.listen_addr();
    let mut stream = TcpStream::connect(addr).unwrap();
    let udp = UdpSocket::bind(any_port()).unwrap();
    let body = join_body(0, 2).replace("9000", &udp.local_addr().unwrap().port().to_string());
    write!(stream, "POST /jobs/a/join HTTP/1.1\r\nHost: s\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let waits = || eventually("the rank waits", || client::status(addr).unwrap().jobs.len() == 1);
    challenge::answering(&udp, 0, waits).unwrap();
    let waiting = client::status(addr).unwrap().jobs.remove(0);
    assert_eq!((waiting.state.as_str(), waiting.missing), ("forming", vec![1]));
    drop(stream);
    eventually("the rank is gone", || client::status(addr).unwrap().jobs.is_empty());
}

#[test]
fn what_operators_read_shows_members_and_strangers_and_never_a_key() {
    let switch =
        RunningSwitch::start(&SwitchOptions { http: Some(any_port()), ..SwitchOptions::new(any_port()) }).unwrap();
    let worker = Worker::new(&switch, "a", 0, 1);
    let answer = worker.join().unwrap();
    let key = format!("{:016x}", answer.key.0);
    for noise in [&[0u8; 3][..], &[0xff; 40], &[0x54, 0x42, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        worker.udp.send_to(noise, answer.shards[0]).unwrap();
    }
    worker.ping(&answer);
    let http = switch.http_addr().unwrap();
    eventually("member and strangers are seen", || {
        let status = client::status(http).unwrap();
        status.jobs[0].members[0].heard_s_ago.is_some() && status.switch.strangers.values().sum::<u64>() == 3
    });
    let strangers = client::status(http).unwrap().switch.strangers;
    assert_eq!(strangers.keys().collect::<Vec<_>>(), ["bad_magic", "bad_version", "truncated"]);
    for addr in [switch.listen_addr(), http] {
        for path in "/ /status /history /switch /jobs /jobs/a /metrics /metrics/jobs /healthz".split(' ') {
            let answer = get(addr, path);
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
            assert!(!answer.contains(&key), "{path}");
        }
    }
    let metrics = get(http, "/metrics") + &get(http, "/metrics/jobs");
    for line in [
        r#"tributary_job_world{name="a",id="1"} 1"#,
        r#"tributary_job_members{name="a",id="1",state="present"} 1"#,
        r#"tributary_strangers_total{reason="truncated"} 1"#,
        r#"tributary_shard_up{shard="0"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(post(http, "/jobs/a/join", &join_body(0, 1)).starts_with("HTTP/1.1 404"), "operators only read");
}

#[test]
fn wrong_requests_get_a_status_a_sentence_and_a_word() {
    let switch = switch();
    let addr = switch.listen_addr();
    let join = |body: &str| post(addr, "/jobs/a/join", body);
    let without = |what: &str, with: &str| join(&join_body(0, 2).replace(what, with));
    let cases = [
        (get(addr, "/nothing"), 404, "not_found"),
        (get(addr, "/jobs/b"), 404, "unknown_job"),
        (get(addr, "/jobs/a/join"), 405, "method_not_allowed"),
        (post(addr, "/metrics", ""), 405, "method_not_allowed"),
        (post(addr, "/jobs/a%20b/join", &join_body(0, 2)), 400, "bad_name"),
        (join("{"), 400, "bad_request"),
        (join(""), 400, "bad_request"),
        (join(&"x".repeat(100_000)), 413, "bad_body"),
        (without("\"rank\":0", "\"rank\":2"), 400, "bad_rank"),
        (without("\"rank\":0", "\"rank\":-1"), 400, "bad_request"),
        (without("\"rank\":0", "\"rank\":0,\"colour\":1"), 400, "bad_request"),
        (without("ring", "token"), 400, "bad_request"),
        (without("\"wire_version\":2", "\"wire_version\":77"), 400, "wire_version"),
        (without("\"timeout_s\":20", "\"timeout_s\":-20"), 400, "bad_request"),
        (without("\"timeout_s\":20", "\"timeout_s\":1e400"), 400, "bad_request"),
        (without("9000", "0"), 400, "bad_request"),
        (post(addr, "/jobs/a/leave", r#"{"job_id":1,"key":"0000000000000000","rank":0}"#), 404, "unknown_job"),
        (post(addr, "/jobs/a/leave", r#"{"job_id":1,"key":"0","rank":0}"#), 400, "bad_request"),
    ];
    for (answer, status, code) in cases {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{code}: {answer}");
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["code"], code, "{body}");
        assert!(body["error"].as_str().is_some_and(|sentence| sentence.len() > 10), "{body}");
    }
}

#[test]
fn clients_that_do_not_finish_their_requests_hold_nobody_else_up() {
    let switch = switch();
    let addr = switch.listen_addr();
    let slow: Vec<TcpStream> = (0..300)
        .map(|i| {
            let mut stream = TcpStream::connect(addr).unwrap();
            let parts = ["", "GET /sta", "POST /jobs/a/join HTTP/1.1\r\nHost: s\r\nContent-Length: 400\r\n\r\n{"];
            stream.write_all(parts[i % parts.len()].as_bytes()).unwrap();
            stream
        })
        .collect();
    let workers: Vec<Worker> = (0..3).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    assert!(join_all(&workers).iter().all(Result::is_ok));
    drop(slow);
}

#[test]
fn a_switch_that_cannot_start_says_why_and_leaves_nothing_behind() {
    let first = switch();
    let taken = first.listen_addr();
    let start = |options: SwitchOptions| RunningSwitch::start(&options).err().expect("it cannot start");
    let sentence = start(SwitchOptions::new(taken)).to_string();
    assert_eq!(
        sentence,
        format!("TCP {taken} is in use by another program: stop that one, or choose another port with --listen")
    );
    // An address that no other test uses: a port that is free for UDP is then free for TCP.
    let alone: SocketAddr = "127.0.0.77:0".parse().unwrap();
    let udp = UdpSocket::bind(alone).unwrap();
    let error = start(SwitchOptions::new(udp.local_addr().unwrap()));
    assert!(matches!(error, StartError::InUse { transport: "UDP", .. }), "{error}");
    let error = start(SwitchOptions::new("192.0.2.1:0".parse().unwrap()));
    assert!(error.to_string().starts_with("192.0.2.1 is no address of this machine"), "{error}");
    assert!(matches!(start(SwitchOptions { shards: 0, ..SwitchOptions::new(any_port()) }), StartError::Shards(0)));
    let free = UdpSocket::bind(alone).unwrap().local_addr().unwrap();
    let error = start(SwitchOptions { http: Some(taken), ..SwitchOptions::new(free) });
    assert!(error.to_string().contains("--http"), "{error}");
    RunningSwitch::start(&SwitchOptions::new(free)).unwrap().stop();
}

#[test]
fn a_switch_that_stops_tells_who_waits_and_frees_its_ports() {
    let switch = switch();
    let addr = switch.listen_addr();
    let worker = Worker::new(&switch, "a", 0, 2);
    let sentence = thread::scope(|scope| {
        let waiting = scope.spawn(|| refused(worker.join()));
        eventually("the rank waits", || client::status(addr).unwrap().jobs.len() == 1);
        switch.stop();
        waiting.join().unwrap()
    });
    assert!(sentence.starts_with("the switch is stopping"), "{sentence}");
    RunningSwitch::start(&SwitchOptions::new(addr)).unwrap().stop();
}

#[test]
fn a_client_says_what_is_wrong_with_the_address() {
    let nobody = UdpSocket::bind(any_port()).unwrap().local_addr().unwrap();
    let sentence = client::status(nobody).unwrap_err().to_string();
    assert!(sentence.starts_with(&format!("nothing listens at {nobody}")), "{sentence}");
    let other = std::net::TcpListener::bind(any_port()).unwrap();
    let addr = other.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    });
    let sentence = client::status(addr).unwrap_err().to_string();
    assert!(sentence.contains("is no Tributary switch"), "{sentence}");
    server.join().unwrap();
}
