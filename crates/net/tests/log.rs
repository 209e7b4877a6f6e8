//! What operators read of a switch as it happens: a line for each thing, and never what only members may know.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::slice;
use std::sync::{Mutex, MutexGuard, Once};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;
use tributary_control::Timers;
use tributary_control::config::Tokens;
use tributary_net::challenge;
use tributary_net::client::HttpRendezvous;
use tributary_net::rendezvous::{JoinAnswer, JoinError, JoinRequest, Rendezvous};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

/// All that was logged, at the finest level.
static LOG: Written = Written(Mutex::new(Vec::new()));
static START: Once = Once::new();

struct Written(Mutex<Vec<u8>>);

impl Write for &'static Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct ToLog;

impl MakeWriter<'_> for ToLog {
    type Writer = &'static Written;

    fn make_writer(&self) -> &'static Written {
        &LOG
    }
}

fn start_log() {
    START.call_once(|| {
        let level = tracing_subscriber::filter::LevelFilter::TRACE;
        tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(ToLog).init();
    });
}

fn log() -> String {
    let bytes: MutexGuard<'_, Vec<u8>> = LOG.0.lock().unwrap();
    String::from_utf8(bytes.clone()).unwrap()
}

/// The lines that say this of a job.
fn lines(message: &str, job: &str) -> Vec<String> {
    let job = format!("job={job} ");
    let quoted = job.replace('=', "=\"").replace(' ', "\" ");
    let says = |line: &&str| line.contains(message) && (line.contains(&job) || line.contains(&quoted));
    log().lines().filter(says).map(str::to_owned).collect()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < patience, "never: {what}\n{}", log());
        thread::sleep(Duration::from_millis(20));
    }
}

fn options() -> SwitchOptions {
    SwitchOptions::new("127.0.0.1:0".parse().unwrap())
}

struct Worker {
    udp: UdpSocket,
    rendezvous: HttpRendezvous,
    request: JoinRequest,
}

impl Worker {
    fn new(switch: SocketAddr, job: &str, rank: u16, world_size: u16) -> Worker {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let request_of_a_rank = crate::support::join_request(protocols::ALL[0], job, rank, world_size, &udp);
        let request = JoinRequest { suggested_slots: 8, timeout: Duration::from_secs(20), ..request_of_a_rank };
        Worker { udp, rendezvous: HttpRendezvous::new(switch).unwrap(), request }
    }

    fn join(&self) -> Result<JoinAnswer, JoinError> {
        let incarnation = self.rendezvous.incarnation().unwrap();
        challenge::answering(slice::from_ref(&self.udp), incarnation, || self.rendezvous.join(&self.request)).unwrap()
    }
}

fn join_all(workers: &[Worker]) -> Vec<Result<JoinAnswer, JoinError>> {
    thread::scope(|scope| {
        let joins: Vec<_> = workers.iter().map(|worker| scope.spawn(|| worker.join())).collect();
        joins.into_iter().map(|join| join.join().unwrap()).collect()
    })
}

fn post(addr: SocketAddr, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: switch\r\nAuthorization: Bearer {token}\r\nContent-Length: 2");
    stream.write_all(format!("{head}\r\n\r\n{{}}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// All ways in which somebody might write a key down.
fn assert_secret(key: u64) {
    let log = log();
    for text in [format!("{key:x}"), format!("{key:X}"), format!("{key}"), format!("{:?}", key.to_be_bytes())] {
        assert!(!log.contains(&text), "the log has a key: {text}");
    }
}

#[test]
fn a_job_s_life_is_a_line_for_each_thing_that_happens_and_none_has_its_key() {
    start_log();
    let timers = Timers { lease: Span::from_millis(600), grace: Span::from_millis(100), ..Timers::default() };
    let switch = RunningSwitch::start(&SwitchOptions { timers, ..options() }).unwrap();
    let addr = switch.listen_addr();
    let good: Vec<Worker> = (0..2).map(|rank| Worker::new(addr, "good", rank, 2)).collect();
    let answer = join_all(&good).remove(0).unwrap();
    for worker in &good {
        worker.rendezvous.leave(answer.job_id, answer.key, worker.request.rank, Some(0));
    }
    eventually("the end of a job", || lines("job ended", "good").len() == 1);
    assert!(lines("job ended", "good")[0].contains("end=\"left\""), "{:?}", lines("job ended", "good"));
    assert_eq!(lines("job formed", "good").len(), 1);
    assert!(lines("job formed", "good")[0].contains("world_size=2"));

    let silent = Worker::new(addr, "silent", 0, 1);
    let (key, udp) = (silent.join().unwrap().key, silent.request.udp);
    // While its socket is there, the process may merely stand still.
    drop(silent);
    eventually("a lost member", || lines("job ended", "silent").len() == 1);
    let lost = lines("member lost", "silent");
    assert!(lost.len() == 1 && lost[0].contains("WARN") && lost[0].contains("rank=0"), "{lost:?}");
    assert!(lost[0].contains(&udp.to_string()), "{lost:?}");
    assert!(lines("job ended", "silent")[0].contains("end=\"lost\""));

    let alike = [Worker::new(addr, "odd", 0, 2), Worker::new(addr, "odd", 1, 3)];
    assert!(join_all(&alike).iter().all(Result::is_err));
    eventually("refusals", || lines("join refused", "odd").len() == 2);
    assert!(lines("join refused", "odd").iter().all(|line| line.contains("disagree")));
    for key in [answer.key, key] {
        assert_secret(key.0);
    }
    switch.stop();
}

#[test]
fn tokens_right_and_wrong_stay_out_of_the_log_and_whoever_shows_one_is_in_it() {
    start_log();
    let (right, wrong) = ("rightly-given-0123456789", "wrongly-guessed-0123456789");
    let file = format!("[[tenant]]\nname = \"us\"\ntoken = \"{right}\"\n");
    let tokens = Some(Tokens::parse(&file).unwrap());
    let switch = RunningSwitch::start(&SwitchOptions { tokens, ..options() }).unwrap();
    assert!(post(switch.listen_addr(), "/jobs/guarded/join", wrong).contains("wrong_token"));
    assert!(post(switch.listen_addr(), "/jobs/guarded/join", right).contains("bad_request"));
    assert!(post(switch.listen_addr(), "/servers/watch", wrong).contains("wrong_token"));
    eventually("the refusals", || lines("join refused", "guarded").len() == 2);
    let by_tenant = lines("join refused", "guarded").iter().filter(|line| line.contains("client=tenant 'us'")).count();
    assert_eq!(by_tenant, 1, "the other showed a wrong token: {:?}", lines("join refused", "guarded"));
    let log = log();
    assert!(log.contains("request refused") && log.contains("wrong_token"), "{log}");
    assert!(!log.contains(right) && !log.contains(wrong), "{log}");
    switch.stop();
}
