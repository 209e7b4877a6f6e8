//! The control plane over real sockets: what members, operators and strangers get to hear from a switch.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use tributary_net::client::{self, HttpRendezvous};
use tributary_net::rendezvous::{JoinAnswer, JoinError, JoinRequest, Rendezvous, Standing};
use tributary_net::switch_daemon::{RunningSwitch, StartError, SwitchOptions};
use tributary_proto::registry::Protocol;
use tributary_proto::wire::{COMMON_LEN, Common, kind};

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
            protocol: Protocol::Ring,
            udp: udp.local_addr().unwrap(),
            elements_per_packet: None,
            max_elements_per_packet: 360,
            slots: None,
            suggested_slots: 64,
            timeout: Duration::from_secs(20),
        };
        Worker { udp, rendezvous: HttpRendezvous::new(switch.listen_addr()).unwrap(), request }
    }

    fn join(&self) -> Result<JoinAnswer, JoinError> {
        self.rendezvous.join(&self.request)
    }

    /// One sign of life to every shard.
    fn ping(&self, answer: &JoinAnswer) {
        let mut packet = [0; COMMON_LEN];
        let common =
            Common { protocol: self.request.protocol.code(), kind: kind::PING, job: answer.job_id, key: answer.key };
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
    for answer in &answers {
        assert_eq!(answer, &answers[0]);
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
