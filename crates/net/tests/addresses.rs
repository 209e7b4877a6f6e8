//! Whose address is it: a switch sends packets only where somebody has asked for them, and takes them only from there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use tributary_net::group::{ConnectOptions, Group};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::protocols;

/// No test waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

fn switch() -> RunningSwitch {
    RunningSwitch::start(&SwitchOptions::new("127.0.0.1:0".parse().unwrap())).unwrap()
}

fn connect(switch: &RunningSwitch, job: &str, rank: u16, world_size: u16) -> Group {
    Group::connect(&ConnectOptions {
        switch: switch.listen_addr().to_string(),
        job: job.to_string(),
        rank,
        world_size,
        timeout: PATIENCE,
        protocol: protocols::named("switchml").unwrap(),
        options: protocols::named("switchml").unwrap().options.defaults(),
        elements_per_packet: None,
        slots: None,
        trees: None,
        cores: None,
    })
    .unwrap()
}

fn post(addr: SocketAddr, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    let request = format!("POST {path} HTTP/1.1\r\nHost: switch\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A join of a job of one rank whose packets come from `port`, it says.
fn join_body(port: u16) -> String {
    format!(
        r#"{{"wire_version":2,"rank":0,"world_size":1,"protocol":"switchml","udp_port":{port},"max_elements_per_packet":360,
        "suggested_slots":64,"incarnation":"0000000000000e11","timeout_s":20}}"#
    )
}

/// The join of a switch below with one rank, whose packets come from `shard`, it says.
fn switch_body(shard: SocketAddr) -> String {
    format!(
        r#"{{"wire_version":2,"incarnation":"0000000000000e12","question":1,"shards":["{shard}"],"most_slots":64,
        "ranks":[{{"join":{},"udp":"{shard}","waited_s":0}}],"switches":[]}}"#,
        join_body(shard.port())
    )
}

/// The offer of a server that receives at `udp`, it says.
fn server_body(udp: SocketAddr) -> String {
    format!(r#"{{"wire_version":2,"incarnation":"0000000000000e13","udp":"{udp}","receive_buffer":8388608}}"#)
}

#[test]
fn a_member_keeps_its_address_whatever_others_claim() {
    let switch = switch();
    let addr = switch.listen_addr();
    let groups: Vec<Group> = thread::scope(|scope| {
        let switch = &switch;
        let ranks: Vec<_> = (0..2).map(|rank| scope.spawn(move || connect(switch, "honest", rank, 2))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let victim = groups[0].info().local;
    let claims = [
        ("/jobs/evil/join", join_body(victim.port()), "address_unproven"),
        ("/jobs/worse/switches/join", switch_body(victim), "address_unproven"),
        ("/servers/watch", server_body(victim), "server_unproven"),
    ];
    for (path, body, code) in claims {
        let answer = post(addr, path, &body);
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains(code), "{path}: {answer}");
        thread::scope(|scope| {
            for group in &groups {
                scope.spawn(|| group.allreduce_in_place(&mut [1i32; 10_000], ReduceOp::Sum, PATIENCE).unwrap());
            }
        });
    }
}

#[test]
fn a_bystander_is_sent_at_most_three_times_what_its_claimant_has_sent() {
    let switch = switch();
    let bystander = UdpSocket::bind("127.0.0.1:0").unwrap();
    bystander.set_nonblocking(true).unwrap();
    let victim = bystander.local_addr().unwrap();
    for (path, body) in
        [("/jobs/reflected/switches/join", switch_body(victim)), ("/servers/watch", server_body(victim))]
    {
        let answer = post(switch.listen_addr(), path, &body);
        assert!(answer.contains("unproven"), "{answer}");
        let (mut sent, mut bytes) = (0, [0; 2048]);
        while let Ok(len) = bystander.recv(&mut bytes) {
            sent += len;
        }
        assert!(sent > 0, "it was asked");
        assert!(sent <= 3 * body.len(), "{sent} bytes for a request of {}", body.len());
    }
}
