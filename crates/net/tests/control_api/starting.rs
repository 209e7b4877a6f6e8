//! How a switch starts and stops, and what clients hear where none is.

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::thread;

use tributary_net::client;
use tributary_net::switch_daemon::{RunningSwitch, StartError, SwitchOptions};

use crate::control_api::setup::{Worker, any_port, eventually, refused, switch};

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
    assert!(error.to_string().starts_with("192.0.2.1 is not an address of this machine"), "{error}");
    assert!(matches!(start(SwitchOptions { shards: 0, ..SwitchOptions::new(any_port()) }), StartError::Shards(0)));
    let free = UdpSocket::bind(alone).unwrap().local_addr().unwrap();
    let error = start(SwitchOptions { http: Some(taken), ..SwitchOptions::new(free) });
    assert!(error.to_string().contains("--http"), "{error}");
    RunningSwitch::start(&SwitchOptions::new(free)).unwrap().stop();
}

#[test]
fn a_switch_that_stops_refuses_who_waits_and_frees_its_ports() {
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
    assert!(sentence.contains("is not a Tributary switch"), "{sentence}");
    server.join().unwrap();
}
