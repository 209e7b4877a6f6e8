//! Processes of different versions: each hears which of the two is the older, whichever of them asks, and nothing else happens.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, connect_options};
use tracing_subscriber::fmt::MakeWriter;
use tributary_control::fabric::FabricFile;
use tributary_net::client;
use tributary_net::group::Group;
use tributary_net::server::{RunningServer, ServerOptions};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::wire::{self, COMMON_LEN, Common, kind};
use tributary_proto::protocols;

/// What this build says of itself; the tests are about one more and one less.
const API: u16 = 6;

const BOTH: &str = "is the older: install the same version of Tributary on both";

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// One that runs on switches in levels too.
fn any_protocol() -> &'static Protocol {
    protocols::ALL.iter().copied().find(|protocol| protocol.shared.is_none()).unwrap()
}

/// Posts a body, with these lines of a header; the whole answer.
fn post(addr: SocketAddr, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: switch\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A switch of this version of the control API: it answers everything with what nobody here understands.
fn switch_of_version(version: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        // Ends with the test's process.
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut bytes = [0; 65_536];
            let _ = stream.read(&mut bytes);
            let body = r#"{"tomorrow":"will be other"}"#;
            let head = format!("HTTP/1.1 200 OK\r\nX-Tributary-Api: {version}\r\nContent-Length: {}", body.len());
            let _ = stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes());
        }
    });
    addr
}

fn join_body(wire_version: u8) -> String {
    format!(
        r#"{{"wire_version":{wire_version},"rank":0,"world_size":2,"protocol":"{}","udp_port":9000,"max_elements_per_packet":360,
        "suggested_slots":64,"incarnation":"0000000000000001","timeout_s":20}}"#,
        any_protocol().name
    )
}

fn switch_body(wire_version: u8) -> String {
    format!(
        r#"{{"wire_version":{wire_version},"incarnation":"0000000000000009","question":1,"shards":["127.0.0.1:9000"],
        "most_slots":64,"ranks":[],"switches":[]}}"#
    )
}

fn server_body(wire_version: u8) -> String {
    format!(
        r#"{{"wire_version":{wire_version},"incarnation":"0000000000000013","udp":"127.0.0.1:9000","receive_buffer":99}}"#
    )
}

#[test]
fn a_request_of_another_api_version_learns_which_is_older_whatever_it_is() {
    let switch = RunningSwitch::start(&SwitchOptions::new(any_port())).unwrap();
    for path in ["/jobs/a/join", "/jobs/a/switches/join", "/servers/watch", "/jobs/a/watch", "/a/path/of/tomorrow"] {
        for (theirs, older) in [(API + 1, "this switch"), (API - 1, "who asks")] {
            let header = format!("X-Tributary-Api: {theirs}\r\n");
            let answer = post(switch.listen_addr(), path, &header, r#"{"a field of tomorrow":1}"#);
            assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("api_version"), "{path}: {answer}");
            let sentence = format!(
                "who asks speaks version {theirs} of the control API and this switch version {API}, so {older} {BOTH}"
            );
            assert!(answer.contains(&sentence), "{path}: {answer}");
            assert!(answer.to_lowercase().contains(&format!("x-tributary-api: {API}\r\n")), "{answer}");
        }
        for garbage in ["", "-1", "70000", "two", "\u{fe}"] {
            let answer = post(switch.listen_addr(), path, &format!("X-Tributary-Api: {garbage}\r\n"), "{}");
            assert!(answer.starts_with("HTTP/1.1 400"), "{path} {garbage:?}: {answer}");
        }
    }
}

#[test]
fn who_sends_packets_of_another_version_learns_which_is_older_before_anything_is_sent() {
    let switch = RunningSwitch::start(&SwitchOptions::new(any_port())).unwrap();
    let requests = [
        ("/jobs/a/join", join_body as fn(u8) -> String, "this worker"),
        ("/jobs/a/switches/join", switch_body, "the switch below"),
        ("/servers/watch", server_body, "this server"),
    ];
    for (path, body, asker) in requests {
        for (theirs, older) in
            [(wire::VERSION + 1, "this switch"), (wire::VERSION - 1, asker), (0, asker), (255, "this switch")]
        {
            let answer = post(switch.listen_addr(), path, "", &body(theirs));
            let ours = wire::VERSION;
            let sentence = format!(
                "{asker} speaks version {theirs} of the wire format and this switch version {ours}, so {older} {BOTH}"
            );
            assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(&sentence), "{path}: {answer}");
        }
    }
}

#[test]
fn a_worker_a_program_and_a_server_say_which_is_older_if_the_switch_has_another_version() {
    for (version, older) in [("9", "this program"), ("0", "the switch at")] {
        let switch = switch_of_version(version);
        let expected = format!(
            "this program speaks version {API} of the control API and the switch at {switch} version {version}, so {older}"
        );
        let said = [
            client::status(switch).unwrap_err().to_string(),
            Group::connect(&connect_options(switch, any_protocol(), "a", 0, 1)).err().unwrap().to_string(),
            RunningServer::start(&ServerOptions::new(switch, any_port())).err().unwrap().to_string(),
        ];
        for sentence in said {
            assert!(sentence.contains(&expected) && sentence.contains(BOTH), "{sentence}");
        }
    }
    let garbage = switch_of_version("yes");
    let sentence = client::status(garbage).unwrap_err().to_string();
    assert!(sentence.contains("is not a number"), "{sentence}");
}

#[test]
fn a_rank_below_a_parent_of_another_version_learns_which_of_the_switches_is_older() {
    for (version, older) in [("9", "this program"), ("0", "the switch at")] {
        let parent = switch_of_version(version);
        let below =
            RunningSwitch::start(&SwitchOptions { parent: Some(parent), ..SwitchOptions::new(any_port()) }).unwrap();
        let options = connect_options(below.listen_addr(), any_protocol(), "a", 0, 2);
        let sentence = Group::connect(&options).err().unwrap().to_string();
        assert!(sentence.contains("of the control API") && sentence.contains(BOTH), "{sentence}");
        assert!(sentence.contains(&format!("so {older}")), "{sentence}");
    }
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

#[test]
fn a_switch_of_a_fabric_logs_a_neighbour_of_another_version_and_which_of_them_is_older() {
    let log = Log::default();
    tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).init();
    let free = TcpListener::bind(any_port()).unwrap().local_addr().unwrap().port();
    let text = format!(
        "secret = \"0123456789abcdef\"\ncontroller = \"leaf\"\nnetwork = \"127.78.1.0\"\nport = {free}\n\
         [graph]\nhosts = [\"here\", \"away\"]\nswitches = [\"leaf\", \"top\"]\n\
         links = [[\"here\", \"leaf\"], [\"away\", \"top\"], [\"leaf\", \"top\"]]\n\
         [addresses]\nhere = \"127.0.0.1\"\n"
    );
    let fabric = Arc::new(FabricFile::parse(&text).unwrap());
    let [leaf, top] = ["leaf", "top"].map(|name| fabric.node_named(name).unwrap());
    let _leaf = RunningSwitch::start(&SwitchOptions::in_fabric(Arc::clone(&fabric), leaf)).unwrap();
    let neighbour = UdpSocket::bind(fabric.udp(top)).unwrap();
    for (theirs, older) in [(wire::VERSION + 1, "this switch"), (wire::VERSION - 1, "the neighbour")] {
        let mut hello = [0; COMMON_LEN + 6];
        Common { protocol: 0, kind: kind::HELLO, job: JobId(0), key: JobKey(0) }.emit(&mut hello);
        hello[wire::VERSION_AT] = theirs;
        let sentence = format!("the neighbour speaks version {theirs} of the wire format");
        let start = Instant::now();
        loop {
            neighbour.send_to(&hello, fabric.udp(leaf)).unwrap();
            let said = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
            if said.contains(&sentence) && said.contains(&format!("so {older} {BOTH}")) {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{said}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
