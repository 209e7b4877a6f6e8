//! Memory of a fabric's switches: jobs that join in the name of hosts, as leaves pass joins on, and send no packet.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tributary_control::fabric::{FabricFile, FabricLayout};
use tributary_net::client;
use tributary_net::status::JobStatus;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::wire;
use tributary_proto::protocols;

const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: &str = "0123456789abcdef";

/// Four leaves with a host each, below two spines; all of them run.
struct Fabric {
    layout: Arc<FabricLayout>,
    switches: Vec<RunningSwitch>,
}

impl Fabric {
    /// `number` keeps tests that run at the same time apart.
    fn start(number: u8, keys: &str) -> Fabric {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let text = format!(
            "secret = \"{SECRET}\"\nnetwork = \"127.78.{number}.0\"\nport = {port}\nqueue = \"4096 KiB\"\n{keys}\n\
             [leaf_spine]\nleaves = 4\nspines = 2\nhosts_per_leaf = 1\n"
        );
        drop(free);
        let layout = Arc::new(FabricFile::parse(&text).unwrap());
        let start = |node| RunningSwitch::start(&SwitchOptions::in_fabric(Arc::clone(&layout), node)).unwrap();
        let switches: Vec<_> = layout.switches().map(start).collect();
        let fabric = Fabric { layout, switches };
        let is_up = |switch: &RunningSwitch| {
            let own = client::status(switch.listen_addr()).unwrap().switch.fabric.unwrap();
            own.ready && own.ports.iter().filter(|port| !port.peer.starts_with("host")).all(|port| port.up)
        };
        let start = Instant::now();
        while !fabric.switches.iter().all(is_up) {
            assert!(start.elapsed() < PATIENCE, "not all switches hear each other");
            thread::sleep(Duration::from_millis(20));
        }
        fabric
    }

    fn controller(&self) -> &RunningSwitch {
        self.switches.last().unwrap()
    }

    /// A question to the controller in the name of a host.
    fn ask(&self, host: &str, path: &str, body: &Value) -> Value {
        let address = self.layout.nodes[self.layout.node_named(host).unwrap().index()].address;
        let mut stream = TcpStream::connect(self.controller().listen_addr()).unwrap();
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: controller\r\nConnection: close\r\nContent-Type: application/json\r\n\
             x-tributary-fabric: {SECRET}\r\nx-tributary-host: {address}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|_| panic!("{answer}"))
    }

    fn knows(&self, job: &str) -> bool {
        client::status(self.controller().listen_addr()).unwrap().jobs.iter().any(|known| known.name == job)
    }

    /// Has these hosts join a job with this many slots; the answer to rank 0.
    fn join(&self, protocol: &Protocol, job: &str, hosts: &[&str], slots: u16) -> Value {
        let body = |rank: usize| {
            json!({
                "wire_version": wire::VERSION, "rank": rank, "world_size": hosts.len(), "protocol": protocol.name,
                "udp_port": 4_000 + rank, "max_elements_per_packet": 352, "slots": slots, "suggested_slots": slots,
                "incarnation": format!("{:016x}", rank + 1), "timeout_s": 20.0,
            })
        };
        let path = format!("/jobs/{job}/join");
        thread::scope(|scope| {
            let ask = |rank: usize| self.ask(hosts[rank], &path, &body(rank));
            let own = scope.spawn(move || ask(0));
            // The job is charged to the host of the rank that comes first.
            while !own.is_finished() && !self.knows(job) {
                thread::sleep(Duration::from_millis(2));
            }
            let others: Vec<_> = (1..hosts.len()).map(|rank| scope.spawn(move || ask(rank))).collect();
            others.into_iter().for_each(|other| drop(other.join().unwrap()));
            own.join().unwrap()
        })
    }

    fn leave(&self, job: &str, hosts: &[&str], joined: &Value) {
        for (rank, host) in hosts.iter().enumerate() {
            let body = json!({ "job_id": joined["job_id"], "key": joined["key"], "rank": rank, "completed": 0 });
            self.ask(host, &format!("/jobs/{job}/leave"), &body);
        }
    }

    /// The job as every switch shows its trees; sorted roots, and the reasons.
    fn planned(&self, job: &str) -> (JobStatus, Vec<String>, Vec<String>) {
        let status = client::status(self.controller().listen_addr()).unwrap();
        let job = status.jobs.into_iter().find(|found| found.name == job).unwrap();
        let mut roots: Vec<String> = job.trees.iter().map(|tree| tree.root.clone()).collect();
        roots.sort_unstable();
        let around = job.trees[0].around.clone();
        (job, roots, around)
    }
}

/// Protocols whose trees are planned for each job, with slots that never change.
fn with_trees() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.placement == Placement::Trees && !protocol.resizes)
}

const LEFT: [&str; 2] = ["host0", "host1"];
const RIGHT: [&str; 2] = ["host2", "host3"];

#[test]
fn trees_are_planned_around_a_spine_that_is_full_and_over_it_again_when_it_is_not() {
    for (number, protocol) in (0..).zip(with_trees()) {
        let fabric = Fabric::start(number, "memory_at = { spine0 = \"3 MiB\" }");
        let joined = fabric.join(protocol, "left", &LEFT, 512);
        assert_eq!(joined["slots"], 512, "{joined}");
        let (_, roots, around) = fabric.planned("left");
        assert_eq!((roots, around), (vec!["spine0".to_owned(), "spine1".into()], Vec::new()), "{protocol}");
        // Each has half of its slots at the small spine, until that has no room for such a half.
        let mut jobs = (0..32).map(|number| {
            let job = format!("right{number}");
            assert_eq!(fabric.join(protocol, &job, &RIGHT, 512)["slots"], 512);
            fabric.planned(&job)
        });
        let (_, roots, around) = jobs.find(|(_, roots, _)| roots.len() < 2).expect("the spine is full at last");
        assert_eq!(roots, ["spine1"], "{protocol}");
        assert!(around.len() == 1 && around[0].starts_with("spine0 is full: a tree needs "), "{around:?}");
        fabric.leave("left", &LEFT, &joined);
        fabric.join(protocol, "again", &LEFT, 512);
        let (_, roots, around) = fabric.planned("again");
        assert_eq!((roots.len(), around), (2, Vec::new()), "{protocol}");
    }
}

#[test]
fn jobs_behind_different_leaves_have_half_of_each_of_these() {
    for (number, protocol) in (10..).zip(with_trees()) {
        let fabric = Fabric::start(number, "memory = \"16 MiB\"");
        // Jobs of one host are in its leaf alone.
        for host in ["host0", "host1", "host2", "host3"] {
            let joined = fabric.join(protocol, &format!("alone-{host}"), &[host], 1_024);
            assert_eq!(joined["slots"], 1_024, "{protocol} {joined}");
        }
        let status = client::status(fabric.controller().listen_addr()).unwrap();
        let in_use: u64 = status.jobs.iter().map(|job| job.memory_bytes).sum();
        assert!(in_use > 16 << 20, "one switch could not have had all: {in_use} bytes");
        assert!(status.switch.memory_used_bytes <= 8 << 20, "{protocol}: {}", status.switch.memory_used_bytes);
    }
}

/// One host may have half of its leaf; all hosts together may fill it.
#[test]
fn a_full_leaf_is_named_and_no_host_fills_it_alone() {
    for (number, protocol) in (15..).zip(with_trees()) {
        let fabric = Fabric::start(number, "memory = \"8 MiB\"");
        let mut refusals = Vec::new();
        for first in ["host0", "host1", "host2", "host3"] {
            let hosts = if first == "host0" { vec![first] } else { vec![first, "host0"] };
            // What is left is had with fewer slots, until nothing is.
            let mut slots = Vec::new();
            for number in 0..64 {
                let joined = fabric.join(protocol, &format!("{first}-{number}"), &hosts, 512);
                match joined["slots"].as_u64() {
                    Some(granted) => slots.push(granted),
                    None => {
                        refusals.push(joined["error"].as_str().unwrap().to_owned());
                        break;
                    }
                }
            }
            assert!(slots.is_sorted_by(|a, b| a >= b) && slots.last() < Some(&512), "{slots:?}");
        }
        assert!(refusals[0].contains("this switch allows "), "{refusals:?}");
        assert!(refusals[3].contains("leaf0 is full: a tree needs"), "{refusals:?}");
        assert_eq!(fabric.join(protocol, "beside", &["host3"], 8)["slots"], 8, "only leaf0 is full");
    }
}

#[test]
fn a_dead_spine_is_named_and_so_is_one_with_too_little_memory_for_jobs_that_divide_it() {
    let mut fabric = Fabric::start(20, "memory_at = { spine0 = \"1 MiB\", leaf3 = \"1 MiB\" }");
    let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.resizes).expect("one of them does");
    fabric.join(protocol, "divides", &LEFT, 64);
    let (_, roots, around) = fabric.planned("divides");
    let less = "spine0 has less memory than the jobs divide".to_owned();
    assert_eq!((roots, around), (vec!["spine1".to_owned()], vec![less]));
    let refused = fabric.join(protocol, "small", &RIGHT, 64);
    assert!(refused["error"].as_str().unwrap().contains("leaf3 is full"), "{refused}");
    fabric.switches.remove(4).stop();
    let start = Instant::now();
    let knows = |switch: &RunningSwitch| {
        let own = client::status(switch.listen_addr()).unwrap().switch.fabric.unwrap();
        own.ports.iter().any(|port| port.peer == "spine0" && !port.up)
    };
    while !fabric.switches[..4].iter().all(knows) {
        assert!(start.elapsed() < PATIENCE, "nobody misses spine0");
        thread::sleep(Duration::from_millis(20));
    }
    // The controller itself hears of the leaves' dead cables a moment later; until then it asks the spine in vain.
    let protocol = with_trees().next().unwrap();
    for number in 0.. {
        let name = format!("later{number}");
        fabric.join(protocol, &name, &LEFT, 64);
        let (_, roots, around) = fabric.planned(&name);
        assert_eq!((roots, around.len()), (vec!["spine1".to_owned()], 1), "{around:?}");
        if around[0] == "spine0 is dead" {
            break;
        }
        assert!(around[0].starts_with("spine0 does not take the job: "), "{around:?}");
        assert!(start.elapsed() < PATIENCE, "the controller never hears that spine0 is dead");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn jobs_that_share_a_machine_are_admitted_as_the_smallest_switch_has_memory() {
    let fabric = Fabric::start(30, "memory = \"512 MiB\"\nmemory_at = { spine0 = \"1 MiB\" }");
    for protocol in protocols::ALL.iter().copied().filter(|protocol| protocol.shared.is_some()) {
        let refused = fabric.join(protocol, protocol.name, &LEFT, 64);
        let why = refused["error"].as_str().unwrap_or_else(|| panic!("{protocol}: {refused}"));
        assert!(why.starts_with("the switch is full: 1.0 MiB of 1.0 MiB are free"), "{why}");
    }
    let status = client::status(fabric.controller().listen_addr()).unwrap();
    assert_eq!((status.jobs.len(), status.switch.memory_used_bytes), (0, 0));
}
