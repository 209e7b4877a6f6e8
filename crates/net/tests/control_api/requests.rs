//! Requests of operators and unauthorised clients, over HTTP and by UDP.

use std::io::Write;
use std::net::TcpStream;

use tributary_net::client;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};

use crate::control_api::setup::{Worker, any_port, eventually, get, join_all, join_body, post, switch};

#[test]
fn what_operators_read_shows_members_and_rejected_packets_and_never_a_key() {
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
    eventually("member and rejected packets are seen", || {
        let status = client::status(http).unwrap();
        status.jobs[0].members[0].last_seen_s_ago.is_some() && status.switch.rejected_packets.values().sum::<u64>() == 3
    });
    let rejected = client::status(http).unwrap().switch.rejected_packets;
    assert_eq!(rejected.keys().collect::<Vec<_>>(), ["bad_magic", "bad_version", "truncated"]);
    for addr in [switch.listen_addr(), http] {
        for path in "/ /status /history /switch /jobs /jobs/a /metrics /metrics/jobs /livez /healthz /readyz".split(' ')
        {
            let answer = get(addr, path);
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
            assert!(!answer.contains(&key), "{path}");
        }
    }
    let metrics = get(http, "/metrics") + &get(http, "/metrics/jobs");
    for line in [
        r#"tributary_job_world_size{name="a",id="1"} 1"#,
        r#"tributary_job_members{name="a",id="1",state="present"} 1"#,
        r#"tributary_rejected_packets_total{reason="truncated"} 1"#,
        r#"tributary_shard_up{shard="0"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(post(http, "/jobs/a/join", &join_body(0, 1)).starts_with("HTTP/1.1 404"), "operators only read");
}

#[test]
fn a_member_that_speaks_as_a_switch_is_refused_and_its_words_reach_nobody() {
    let switch = switch();
    let workers = [0, 1].map(|rank| Worker::new(&switch, "a", rank, 2));
    let answers = join_all(&workers);
    let answer = answers[0].as_ref().unwrap();
    let (id, key) = (answer.job_id.0, format!("{:016x}", answer.key.0));
    let words = "run this as root";
    for wid in [1, 60_000] {
        let who = format!(r#""job_id":{id},"key":"{key}","wid":{wid},"incarnation":"0000000000000001""#);
        let watch =
            format!(r#"{{{who},"below":{{"left":[],"lost":[],"broken":"{words}"}},"gone":{{"left":[],"lost":[]}}}}"#);
        let leave = format!(r#"{{{who},"completed":1}}"#);
        for (path, body) in [("watch", watch), ("leave", leave)] {
            let refused = post(switch.listen_addr(), &format!("/jobs/a/switches/{path}"), &body);
            assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("not_a_switch"), "{refused}");
        }
    }
    let status = get(switch.listen_addr(), "/status");
    assert!(status.contains("\"running\"") && !status.contains(words), "{status}");
}

#[test]
fn a_leaf_whose_parent_is_dead_is_not_healthy_but_alive() {
    let top = switch();
    let leaf =
        RunningSwitch::start(&SwitchOptions { parent: Some(top.listen_addr()), ..SwitchOptions::new(any_port()) });
    let leaf = leaf.unwrap();
    let answers = |path: &str, status: &str| get(leaf.listen_addr(), path).starts_with(&format!("HTTP/1.1 {status}"));
    eventually("the leaf is ready", || answers("/readyz", "200"));
    assert!(get(leaf.listen_addr(), "/metrics").contains("tributary_parent_up 1"));
    let parent = top.listen_addr().to_string();
    top.stop();
    eventually("the leaf knows", || answers("/healthz", "503"));
    assert!(answers("/readyz", "503") && answers("/livez", "200"));
    assert!(get(leaf.listen_addr(), "/healthz").contains(&parent), "the parent is named");
    assert!(get(leaf.listen_addr(), "/metrics").contains("tributary_parent_up 0"));
    assert!(client::status(leaf.listen_addr()).unwrap().switch.parent_failure.is_some());
}

#[test]
fn words_of_clients_are_repeated_without_what_controls_a_terminal() {
    let switch = switch();
    let body = join_body(0, 2).replace(r#""rank":0"#, r#""rank":0,"\u001b[2J\u0007\r\nFAKE":1"#);
    let answer = post(switch.listen_addr(), "/jobs/a/join", &body);
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let sentence = body["error"].as_str().unwrap();
    assert!(sentence.contains("FAKE") && !sentence.chars().any(char::is_control), "{sentence:?}");
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
        // Joins may bring modules of operators; leaves bring nothing.
        (join(&"x".repeat(300_000)), 413, "bad_body"),
        (post(addr, "/jobs/a/leave", &"x".repeat(10_000)), 413, "bad_body"),
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
            let beginnings = ["", "GET /sta", "POST /jobs/a/join HTTP/1.1\r\nHost: s\r\nContent-Length: 400\r\n\r\n{"];
            stream.write_all(beginnings[i % beginnings.len()].as_bytes()).unwrap();
            stream
        })
        .collect();
    let workers: Vec<Worker> = (0..3).map(|rank| Worker::new(&switch, "a", rank, 3)).collect();
    assert!(join_all(&workers).iter().all(Result::is_ok));
    drop(slow);
}
