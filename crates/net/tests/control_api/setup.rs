//! Workers as the control plane sees them, and requests as they stand on the wire.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::slice;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{self, Runtime};
use tributary_net::challenge;
use tributary_net::client::HttpRendezvous;
use tributary_net::rendezvous::{Departed, JoinAnswer, JoinError, JoinRequest, Rendezvous, Watched};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};
use tributary_proto::protocols;

use crate::support::join_request;

pub fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub fn switch() -> RunningSwitch {
    RunningSwitch::start(&SwitchOptions::new(any_port())).unwrap()
}

/// A worker process as the control plane sees one: a socket, an incarnation, a wish.
pub struct Worker {
    pub udp: UdpSocket,
    pub rendezvous: HttpRendezvous,
    pub request: JoinRequest,
}

impl Worker {
    pub fn new(switch: &RunningSwitch, job: &str, rank: u16, world_size: u16) -> Worker {
        let udp = UdpSocket::bind(any_port()).unwrap();
        let request = join_request(protocols::named("ring").unwrap(), job, rank, world_size, &udp);
        Worker { udp, rendezvous: HttpRendezvous::new(switch.listen_addr()).unwrap(), request }
    }

    pub fn join(&self) -> Result<JoinAnswer, JoinError> {
        let incarnation = self.rendezvous.incarnation().unwrap();
        challenge::answering(slice::from_ref(&self.udp), incarnation, || self.rendezvous.join(&self.request)).unwrap()
    }

    /// Waits until what is gone differs from `known`.
    pub fn watch(&self, job: JobId, key: JobKey, rank: u16, known: &Departed) -> Watched {
        // A connection between two watches is the runtime's.
        static RUNTIME: LazyLock<Runtime> =
            LazyLock::new(|| runtime::Builder::new_current_thread().enable_all().build().unwrap());
        RUNTIME.block_on(self.rendezvous.watch(job, key, rank, known))
    }

    /// One sign of life to every shard.
    pub fn ping(&self, answer: &JoinAnswer) {
        let mut packet = [0; COMMON_LEN];
        let common =
            Common { protocol: self.request.protocol.code, kind: kind::PING, job: answer.job_id, key: answer.key };
        common.emit(&mut packet);
        for shard in &answer.shards {
            self.udp.send_to(&packet, shard).unwrap();
        }
    }
}

pub fn join_all(workers: &[Worker]) -> Vec<Result<JoinAnswer, JoinError>> {
    thread::scope(|scope| {
        let joins: Vec<_> = workers.iter().map(|worker| scope.spawn(|| worker.join())).collect();
        joins.into_iter().map(|join| join.join().unwrap()).collect()
    })
}

/// Waits until the switch says what is expected of it.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < patience, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub fn raw(addr: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub fn get(addr: SocketAddr, path: &str) -> String {
    raw(addr, &format!("GET {path} HTTP/1.1\r\nHost: switch\r\n\r\n"))
}

pub fn post(addr: SocketAddr, path: &str, body: &str) -> String {
    raw(addr, &format!("POST {path} HTTP/1.1\r\nHost: switch\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

pub fn refused(answer: Result<JoinAnswer, JoinError>) -> String {
    match answer {
        Err(JoinError::Refused(sentence)) => sentence,
        other => panic!("not refused: {other:?}"),
    }
}

pub fn join_body(rank: u16, world_size: u16) -> String {
    format!(
        r#"{{"wire_version":2,"rank":{rank},"world_size":{world_size},"protocol":"ring","udp_port":{},"max_elements_per_packet":360,
        "suggested_slots":64,"incarnation":"00000000000000{rank:02x}","timeout_s":20}}"#,
        9000 + rank
    )
}
