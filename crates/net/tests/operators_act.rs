//! What operators do while a switch runs: with a token only, and those it concerns learn it by name.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, connect_options, last_ended};
use tributary_control::config::Tokens;
use tributary_net::client;
use tributary_net::group::Group;
use tributary_net::history::Overview;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

const TOKEN: &str = "0123456789abcdef-night";

fn start() -> RunningSwitch {
    let tokens = Tokens::parse(&format!("[[operator]]\nname = \"night\"\ntoken = \"{TOKEN}\"\n")).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let options = SwitchOptions { tokens: Some(tokens), http: Some(any), ..SwitchOptions::new(any) };
    RunningSwitch::start(&options).unwrap()
}

/// The status and body of the answer to an act.
fn act(switch: SocketAddr, path: &str, body: &str, token: Option<&str>) -> (u16, String) {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let mut stream = TcpStream::connect(switch).unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nHost: s\r\n{token}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

fn protocol() -> &'static Protocol {
    protocols::ALL.iter().find(|protocol| protocol.sums_in_network()).unwrap()
}

fn pair(switch: &RunningSwitch, job: &str) -> Vec<Group> {
    let connect = |rank| Group::connect(&connect_options(switch.listen_addr(), protocol(), job, rank, 2)).unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(move || connect(1));
        vec![connect(0), other.join().unwrap()]
    })
}

/// The error of a rank that sums until it fails.
fn failure(group: &Group) -> String {
    let start = Instant::now();
    loop {
        if let Err(error) = group.allreduce_in_place(&mut [1i32; 1_000], ReduceOp::Sum, PATIENCE) {
            return error.to_string();
        }
        assert!(start.elapsed() < PATIENCE, "the rank does not learn it");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn only_an_operator_acts() {
    let switch = start();
    let paths = ["/jobs/a/end", "/jobs/a/evict", "/clients/ban", "/clients/unban", "/cordon", "/uncordon"];
    for addr in [switch.listen_addr(), switch.http_addr().unwrap()] {
        for (path, token) in paths.into_iter().flat_map(|path| [(path, None), (path, Some("0123456789abcdef"))]) {
            let (status, body) = act(addr, path, "{}", token);
            assert!(status == 401 && body.contains("not_an_operator"), "{path}: {status} {body}");
        }
    }
    let (status, body) = act(switch.listen_addr(), "/jobs/a/end", "{}", Some(TOKEN));
    assert!(status == 404 && body.contains("unknown_job"), "{body}");
}

#[test]
fn every_rank_of_a_job_that_an_operator_ends_learns_who_has_ended_it() {
    let switch = start();
    let groups = pair(&switch, "a");
    thread::scope(|scope| {
        let errors: Vec<_> = groups.iter().map(|group| scope.spawn(|| failure(group))).collect();
        let (status, body) = act(switch.http_addr().unwrap(), "/jobs/a/end", "{}", Some(TOKEN));
        assert_eq!(status, 200, "{body}");
        for task in errors {
            let error = task.join().unwrap();
            assert!(error.contains("operator 'night' has ended job 'a'"), "{error}");
        }
    });
    assert!(client::status(switch.listen_addr()).unwrap().jobs.is_empty());
    let job = last_ended(&switch);
    assert!(job.end == "operator" && job.why.as_ref().is_some_and(|why| why.contains("operator 'night'")), "{job:?}");
    pair(&switch, "a").into_iter().for_each(Group::close);
}

#[test]
fn the_others_learn_of_an_evicted_rank() {
    let switch = start();
    let groups = pair(&switch, "a");
    assert_eq!(act(switch.listen_addr(), "/jobs/a/evict", r#"{"rank": 1}"#, Some(TOKEN)).0, 200);
    let error = groups[0].allreduce_in_place(&mut [1i32; 1_000], ReduceOp::Sum, PATIENCE).unwrap_err().to_string();
    assert!(error.contains("rank 1"), "{error}");
}

#[test]
fn a_cordoned_switch_and_one_that_has_banned_a_client_say_so_and_running_jobs_go_on() {
    let switch = start();
    let addr = switch.listen_addr();
    let groups = pair(&switch, "a");
    let join = || Group::connect(&connect_options(addr, protocol(), "b", 0, 1));
    for (begin, body, end, says) in [
        ("/cordon", "{}", "/uncordon", "cordoned this switch"),
        ("/clients/ban", r#"{"client": "127.0.0.1"}"#, "/clients/unban", "has banned 127.0.0.1"),
    ] {
        assert_eq!(act(addr, begin, body, Some(TOKEN)).0, 200);
        let error = join().err().expect("it is refused").to_string();
        assert!(error.contains(says), "{error}");
        let status = client::status(addr).unwrap().switch;
        assert!(status.cordoned || status.banned == ["127.0.0.1"], "{status:?}");
        thread::scope(|scope| {
            for group in &groups {
                let sum = || group.allreduce_in_place(&mut [1i32; 1_000], ReduceOp::Sum, PATIENCE);
                scope.spawn(move || sum().unwrap());
            }
        });
        assert_eq!(act(addr, end, body, Some(TOKEN)).0, 200);
        join().unwrap().close();
    }
}

/// What `tributary top` and the page follow: at once, then after each sample, and until the switch stops.
#[test]
fn who_follows_a_switch_sees_its_jobs_come_and_go_and_its_end() {
    let switch = start();
    let mut events = client::events(switch.http_addr().unwrap()).unwrap();
    let first = events.next().unwrap().unwrap();
    assert!(first.status.jobs.is_empty() && first.ended.is_empty(), "{first:?}");
    let groups = pair(&switch, "a");
    let start = Instant::now();
    let mut until = |what: &str, seen: &dyn Fn(&Overview) -> bool| {
        let mut unseen = events.by_ref().take_while(|event| !seen(event.as_ref().unwrap()));
        assert!(unseen.all(|_| start.elapsed() < PATIENCE), "never: {what}");
    };
    until("a job", &|event| event.status.jobs.iter().any(|job| job.name == "a"));
    until("its history", &|event| event.history.jobs.iter().any(|job| job.name == "a"));
    groups.into_iter().for_each(Group::close);
    until("its end", &|event| event.ended.iter().any(|job| job.name == "a"));
    drop(switch);
    assert!(events.find(Result::is_err).is_none(), "the answer ends in good order");
}
