//! One host without manners: many joins, connections and packets, made by hand, without the library that keeps them few.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use tributary_net::challenge;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};
use tributary_proto::protocols;
use tributary_testbed::Namespace;

/// All that this host's joins have in common.
const INCARNATION: u64 = 0x5eed;
/// Connections that one test may hold.
const DESCRIPTORS: &str = "--nofile=16384";

/// A host's UDP sockets, which answer the switch's questions: its joins are as good as anybody's.
pub struct Guests<'a> {
    host: &'a Namespace,
    switch: SocketAddr,
    sockets: Arc<Vec<UdpSocket>>,
    ended: Arc<AtomicBool>,
    /// What shows the switch that these are there, once they are members of a job.
    sign_of_life: Arc<OnceLock<(Vec<u8>, SocketAddr)>>,
    answering: Option<JoinHandle<()>>,
}

/// What a member of a job knows.
pub struct Membership {
    pub id: JobId,
    pub key: JobKey,
    pub shard: SocketAddr,
    pub protocol: u8,
}

impl<'a> Guests<'a> {
    /// This many sockets at a host, and more descriptors for this process than the usual 1,024.
    pub fn at(host: &'a Namespace, switch: SocketAddr, sockets: usize) -> Guests<'a> {
        let own = std::process::id().to_string();
        assert!(Command::new("prlimit").args(["--pid", &own, DESCRIPTORS]).status().unwrap().success());
        let open = || (0..sockets).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect::<Vec<_>>();
        let sockets = Arc::new(host.inside(open).unwrap());
        let ended = Arc::new(AtomicBool::new(false));
        let sign_of_life = Arc::new(OnceLock::new());
        let (answered, end, sign) = (Arc::clone(&sockets), Arc::clone(&ended), Arc::clone(&sign_of_life));
        let answering = Some(thread::spawn(move || answer_all(&answered, &end, &sign)));
        Guests { host, switch, sockets, ended, sign_of_life, answering }
    }

    /// Stops to answer, and to show that it lives: what comes to the sockets stays there.
    pub fn fall_silent(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(answering) = self.answering.take() {
            answering.join().unwrap();
        }
    }

    pub fn socket(&self, rank: usize) -> &UdpSocket {
        &self.sockets[rank]
    }

    /// Joins whose connections are open and whose answers nobody has read: of each rank, from the socket of its number.
    pub fn join(
        &self,
        joins: impl Iterator<Item = (String, usize, usize)> + Send,
        slots: Option<u16>,
    ) -> Vec<TcpStream> {
        let requests = joins.map(|(job, rank, world_size)| {
            let port = self.sockets[rank].local_addr().unwrap().port();
            let slots = slots.map(|slots| format!(r#""slots":{slots},"#)).unwrap_or_default();
            let protocol = protocols::ALL[0].name;
            let body = format!(
                r#"{{"wire_version":2,"rank":{rank},"world_size":{world_size},"protocol":"{protocol}","udp_port":{port},{slots}
                "max_elements_per_packet":360,"suggested_slots":64,"incarnation":"{INCARNATION:016x}","timeout_s":60}}"#
            );
            post(&format!("/jobs/{job}/join"), &body)
        });
        self.say(requests)
    }

    /// Opens a connection for each of these and says it.
    pub fn say(&self, requests: impl Iterator<Item = Vec<u8>> + Send) -> Vec<TcpStream> {
        let switch = self.switch;
        let say = |request: Vec<u8>| {
            let mut stream = TcpStream::connect(switch).unwrap();
            // Whoever is turned away may not be heard out.
            let _ = stream.write_all(&request);
            stream
        };
        self.host.inside(|| requests.map(say).collect()).unwrap()
    }

    /// Joins a job with all of its ranks, one from each socket, of which everybody must be let in.
    pub fn take(&self, job: &str, slots: Option<u16>) -> Membership {
        let world_size = self.sockets.len();
        let streams = self.join((0..world_size).map(|rank| (job.to_string(), rank, world_size)), slots);
        let answers: Vec<Value> = streams.into_iter().map(|stream| answer(stream).expect("it is let in")).collect();
        let first = &answers[0];
        let port = first["shard_ports"][0].as_u64().unwrap_or_else(|| panic!("{first}"));
        let membership = Membership {
            id: JobId(first["job_id"].as_u64().unwrap() as u16),
            key: JobKey(u64::from_str_radix(first["key"].as_str().unwrap(), 16).unwrap()),
            shard: SocketAddr::new(self.switch.ip(), port as u16),
            protocol: protocols::ALL[0].code,
        };
        self.sign_of_life.set((membership.ping(COMMON_LEN), membership.shard)).expect("one job");
        membership
    }
}

impl Drop for Guests<'_> {
    fn drop(&mut self) {
        self.fall_silent();
    }
}

impl Membership {
    /// A ping of this job with this many bytes.
    pub fn ping(&self, len: usize) -> Vec<u8> {
        let mut packet = vec![0; len.max(COMMON_LEN)];
        Common { protocol: self.protocol, kind: kind::PING, job: self.id, key: self.key }.emit(&mut packet);
        packet
    }

    /// A watch of a rank of this job.
    pub fn watch(&self, job: &str, rank: usize) -> Vec<u8> {
        let (id, key) = (self.id.0, self.key.0);
        let body = format!(r#"{{"job_id":{id},"key":"{key:016x}","rank":{rank},"gone":{{"left":[],"lost":[]}}}}"#);
        post(&format!("/jobs/{job}/watch"), &body)
    }
}

/// The bytes of a request.
pub fn post(path: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: switch\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// What the switch has answered, if it has: an object.
pub fn answer(mut stream: TcpStream) -> Option<Value> {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text = String::new();
    // One that was turned away may be reset.
    let _ = stream.read_to_string(&mut text);
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

/// Connections that were not answered yet.
pub fn waiting(streams: &[TcpStream]) -> usize {
    let waits = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    streams.iter().filter(waits).count()
}

fn answer_all(sockets: &[UdpSocket], ended: &AtomicBool, sign_of_life: &OnceLock<(Vec<u8>, SocketAddr)>) {
    const EVERY: Duration = Duration::from_secs(1);
    let (mut bytes, mut shown) = ([0; 2048], Instant::now());
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    while !ended.load(Ordering::Relaxed) {
        for socket in sockets {
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                if let Some(answer) = challenge::answer(&bytes[..len], INCARNATION) {
                    // One that is lost is asked for again.
                    let _ = socket.send_to(&answer, from);
                }
            }
        }
        if let Some((packet, to)) = sign_of_life.get().filter(|_| shown.elapsed() > EVERY) {
            sockets.iter().for_each(|socket| drop(socket.send_to(packet, to)));
            shown = Instant::now();
        }
        thread::sleep(Duration::from_millis(2));
    }
}
