//! Who may use a switch, and that nobody takes all of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tributary_control::Quota;
use tributary_control::config::Tokens;
use tributary_net::challenge;
use tributary_net::client::Token;
use tributary_net::client::{self, HttpRendezvous};
use tributary_net::rendezvous::{JoinAnswer, JoinError, JoinRequest, Rendezvous};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

use crate::support::{ready, until};

const OURS: &str = "0123456789abcdef-ours";
const THEIRS: &str = "0123456789abcdef-theirs";

fn start(tokens: bool) -> RunningSwitch {
    let file = format!(
        "[[tenant]]\nname = \"ours\"\ntoken = \"{OURS}\"\nmax_jobs = 1\n[[tenant]]\nname = \"theirs\"\ntoken = \"{THEIRS}\"\n"
    );
    let tokens = tokens.then(|| Tokens::parse(&file).unwrap());
    RunningSwitch::start(&SwitchOptions { tokens, ..SwitchOptions::new("127.0.0.1:0".parse().unwrap()) }).unwrap()
}

fn join(switch: SocketAddr, job: &str, token: Option<&str>, slots: Option<u16>) -> Result<JoinAnswer, JoinError> {
    join_speaking(protocols::named("switchml").unwrap(), switch, job, token, slots)
}

fn join_speaking(
    protocol: &'static Protocol,
    switch: SocketAddr,
    job: &str,
    token: Option<&str>,
    slots: Option<u16>,
) -> Result<JoinAnswer, JoinError> {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let token = token.map(|token| Token::new(token).unwrap());
    let rendezvous = HttpRendezvous::with_token(switch, token).unwrap();
    let request = JoinRequest {
        job: job.to_string(),
        rank: 0,
        world_size: 1,
        protocol,
        options: protocol.options.defaults(),
        udp: udp.local_addr().unwrap(),
        core_ports: Vec::new(),
        elements_per_packet: None,
        max_elements_per_packet: 360,
        slots,
        suggested_slots: 64,
        trees: None,
        timeout: Duration::from_secs(20),
    };
    let incarnation = rendezvous.incarnation().unwrap();
    challenge::answering(slice::from_ref(&udp), incarnation, || rendezvous.join(&request)).unwrap()
}

#[test]
fn with_tokens_only_tenants_have_jobs_and_each_its_own() {
    let switch = start(true);
    let addr = switch.listen_addr();
    let refusal = |job, token| join(addr, job, token, None).unwrap_err().to_string();
    assert!(refusal("a", None).contains("set TRIBUTARY_TOKEN"));
    assert!(refusal("a", Some("0123456789abcdef-nobodys")).contains("is not one of this switch's"));
    assert!(client::status(addr).unwrap().jobs.is_empty());
    join(addr, "a", Some(OURS), None).unwrap();
    let taken = refusal("a", Some(THEIRS));
    assert!(taken.contains("another tenant"), "{taken}");
    let second = refusal("b", Some(OURS));
    assert!(second.contains("tenant 'ours'") && second.contains("1 jobs at a time"), "{second}");
    join(addr, "b", Some(THEIRS), None).unwrap();
    // Who has no token is nobody's refusal.
    for (series, value) in [
        ("jobs{tenant=\"ours\"}", 1),
        ("jobs{tenant=\"theirs\"}", 1),
        ("refusals_total{tenant=\"ours\"}", 1),
        ("refusals_total{tenant=\"theirs\"}", 1),
    ] {
        let metrics = get(addr, "/metrics");
        assert!(metrics.contains(&format!("\ntributary_tenant_{series} {value}\n")), "{series}: {metrics}");
    }
    let clients = client::status(addr).unwrap().switch.clients;
    let seen: Vec<_> = clients.iter().map(|client| (client.client.as_str(), client.jobs, client.refused)).collect();
    assert_eq!(seen, [("tenant 'ours'", 1, 1), ("tenant 'theirs'", 1, 1)]);
    assert!(clients.iter().all(|client| client.memory_bytes > 0), "{clients:?}");
    assert_eq!(clients[0].last_refusal.as_ref().unwrap().code, "over_client_limit");
}

fn get(switch: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(switch).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: s\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn new_tokens_and_quotas_hold_for_who_joins_from_now_on() {
    let file = |name, token| Tokens::parse(&format!("[[tenant]]\nname = \"{name}\"\ntoken = \"{token}\"\n")).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut options = SwitchOptions { tokens: Some(file("ours", OURS)), ..SwitchOptions::new(listen) };
    let switch = RunningSwitch::start(&options).unwrap();
    let addr = switch.listen_addr();
    join(addr, "a", Some(OURS), None).unwrap();
    options.tokens = Some(file("theirs", THEIRS));
    let small = Quota { jobs: "small-*".into(), memory_bytes: None, max_slots: Some(16), max_world_size: None };
    options.quotas = vec![small];
    switch.reload(&options);
    assert!(join(addr, "b", Some(OURS), None).unwrap_err().to_string().contains("is not one of this switch's"));
    join(addr, "b", Some(THEIRS), None).unwrap();
    assert_eq!(join(addr, "small-c", Some(THEIRS), None).unwrap().slots, 16);
    let jobs = client::status(addr).unwrap().jobs;
    assert!(jobs.iter().any(|job| job.name == "a"), "the job of a token that is gone runs on: {jobs:?}");
}

/// Jobs are formed at the controller, and a worker speaks to its leaf: both have the file of tokens.
#[test]
fn a_fabric_has_tenants_with_limits_too_and_reads_new_tokens() {
    let file = |name, token| {
        Tokens::parse(&format!("[[tenant]]\nname = \"{name}\"\ntoken = \"{token}\"\nmax_jobs = 1\n")).unwrap()
    };
    let fabric = crate::fabric::fabric(61, "0123456789abcdef");
    let options = |name: &str, tokens: Tokens| {
        let node = fabric.node_named(name).unwrap();
        SwitchOptions { tokens: Some(tokens), ..SwitchOptions::in_fabric(Arc::clone(&fabric), node) }
    };
    let [leaf, top] = ["leaf", "top"].map(|name| RunningSwitch::start(&options(name, file("ours", OURS))).unwrap());
    until(&leaf, "a greeting", ready);
    let join = |job, token| join_speaking(crate::fabric::dynamic(), leaf.listen_addr(), job, token, None);
    let refusal = |job, token| join(job, token).unwrap_err().to_string();
    assert!(refusal("a", None).contains("set TRIBUTARY_TOKEN"));
    assert!(refusal("a", Some(THEIRS)).contains("is not one of this switch's"));
    join("a", Some(OURS)).unwrap();
    assert!(refusal("b", Some(OURS)).contains("1 jobs at a time"));
    for (switch, name) in [(&leaf, "leaf"), (&top, "top")] {
        switch.reload(&options(name, file("theirs", THEIRS)));
    }
    assert!(refusal("b", Some(OURS)).contains("is not one of this switch's"));
    join("b", Some(THEIRS)).unwrap();
}

#[test]
fn a_job_that_asks_for_everything_leaves_half_of_the_memory() {
    let switch = start(false);
    let addr = switch.listen_addr();
    join(addr, "greedy", None, Some(16_384)).unwrap();
    join(addr, "greedier", None, Some(16_384)).unwrap();
    let status = client::status(addr).unwrap().switch;
    assert!(status.memory_used_bytes <= status.memory_bytes / 2, "{status:?}");
}

/// Offers a server that receives at a socket; the answer.
fn offer(switch: SocketAddr, udp: &UdpSocket, token: Option<&str>) -> String {
    const INCARNATION: u64 = 0xe13;
    let at = udp.local_addr().unwrap();
    let body =
        format!(r#"{{"wire_version":2,"incarnation":"{INCARNATION:016x}","udp":"{at}","receive_buffer":8388608}}"#);
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!("POST /servers/watch HTTP/1.1\r\nHost: s\r\n{token}Content-Length: {}\r\n\r\n", body.len());
    let ask = || {
        let mut stream = TcpStream::connect(switch).unwrap();
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    challenge::answering(slice::from_ref(udp), INCARNATION, ask).unwrap()
}

#[test]
fn with_tokens_only_tenants_offer_servers_and_those_serve_their_own_jobs_alone() {
    let switch = start(true);
    let addr = switch.listen_addr();
    let served = protocols::ALL.iter().find(|protocol| protocol.server.is_some()).unwrap();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    for wrong in [None, Some("0123456789abcdef-nobodys")] {
        assert!(offer(addr, &server, wrong).starts_with("HTTP/1.1 401"));
    }
    assert!(client::status(addr).unwrap().switch.servers.is_empty());
    let taken = offer(addr, &server, Some(OURS));
    assert!(taken.starts_with("HTTP/1.1 200"), "{taken}");
    let at = server.local_addr().unwrap();
    let servers_of = |job, token| join_speaking(served, addr, job, Some(token), None).unwrap().servers;
    assert!(!servers_of("a", THEIRS).contains(&at), "another tenant's");
    assert_eq!(servers_of("b", OURS), [at]);
}
