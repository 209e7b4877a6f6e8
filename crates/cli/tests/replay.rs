//! What the real driver's machines saw and said, packet by packet, and the same machines in virtual time.
//!
//! Real workers and a real shard exchange packets over UDP through a tap: one thread that passes them on, writes each
//! down, and loses some. The tap's order is the order in which the shard receives. The record is then given to fresh
//! machines, which must make the same packets and the same sums; and a simulated exchange must use each slot alike.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tributary_control::JobName;
use tributary_net::group::{ConnectOptions, Group};
use tributary_net::rendezvous::{
    Departed, JoinAnswer, JoinError, JoinRequest, Rendezvous, Standing, Watched, Watching,
};
use tributary_net::shard::{JobInstall, Shard, ShardHandle, ShardOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, SwitchConfig};
use tributary_proto::contract::drive::record::{HostRecorder, SwitchRecorder};
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::protocols;
use tributary_proto::switch_options::SwitchOptions;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};
use tributary_sim::config::Config;
use tributary_sim::experiment;
use tributary_sim::net::{PacketEvent, TraceEvent, Tracer};

const SLOTS: u16 = 16;
const ELEMENTS_PER_PACKET: u16 = 64;
const ELEMENTS: usize = 10_007;
const PATIENCE: Duration = Duration::from_secs(60);
const HEADER_LEN: usize = 36;

/// One packet that came to the tap.
struct Seen {
    at: Time,
    rank: usize,
    up: bool,
    passed: bool,
    bytes: Vec<u8>,
}

fn config(world_size: u16) -> JobConfig {
    let (job, key) = (JobId(1), JobKey(0x7A9));
    JobConfig {
        job,
        key,
        protocol: 1,
        world_size,
        slots: SLOTS,
        elements_per_packet: ELEMENTS_PER_PACKET,
        trees: 1,
        levels: false,
        options: protocols::named("switchml").unwrap().options.defaults(),
    }
}

fn input(rank: usize) -> Vec<f32> {
    (0..ELEMENTS).map(|i| ((rank * 7_919 + i * 104_729) % 20_011) as f32 / 7.0 - 1_000.0).collect()
}

/// A rendezvous that places the tap between each worker and the shard.
struct Tapped {
    shard: SocketAddr,
    handle: ShardHandle,
    towards_workers: Vec<SocketAddr>,
    towards_shard: Vec<SocketAddr>,
    workers: Mutex<BTreeMap<u16, SocketAddr>>,
    all_here: Barrier,
}

impl Rendezvous for Tapped {
    fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, JoinError> {
        self.workers.lock().unwrap().insert(request.rank, request.udp);
        if self.all_here.wait().is_leader() {
            let members = self.towards_shard.clone();
            let job = JobInstall::of_workers(
                JobName::new("recorded").unwrap(),
                protocols::named("switchml").unwrap(),
                config(request.world_size),
                members,
                self.shard.ip(),
            );
            self.handle.install(job).wait().unwrap().unwrap();
        }
        self.all_here.wait();
        let JobConfig { job, key, slots, elements_per_packet, .. } = config(request.world_size);
        let rank = request.rank;
        Ok(JoinAnswer {
            job_id: job,
            key,
            shards: vec![self.towards_workers[usize::from(rank)]],
            slots,
            elements_per_packet,
            most_cores: 1,
            peers: self.workers.lock().unwrap().values().copied().collect(),
            wid: ChildId(rank),
            switches: Vec::new(),
            servers: Vec::new(),
            serves: None,
            fabric: None,
        })
    }
    fn leave(&self, _job: JobId, _key: JobKey, _rank: u16, _completed: Option<u64>) {}
    fn standing(&self, _job: JobId, _key: JobKey) -> Standing {
        Standing::Installed
    }
    fn watch<'a>(&'a self, _job: JobId, _key: JobKey, _rank: u16, _known: &'a Departed) -> Watching<'a> {
        Box::pin(std::future::ready(Watched::Unwatched))
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Passes packets on until told to stop; every `lose`th of the protocol's own is lost.
fn tap(
    workers: &[UdpSocket],
    shards: &[UdpSocket],
    rendezvous: &Tapped,
    lose: Option<usize>,
    stop: &AtomicBool,
) -> Vec<Seen> {
    let (mut seen, began, mut own, mut bytes) = (Vec::new(), Instant::now(), 0usize, [0; 2_048]);
    while !stop.load(Ordering::Relaxed) {
        let mut idle = true;
        for (rank, (worker, shard)) in workers.iter().zip(shards).enumerate() {
            for (up, from, to) in [(true, worker, shard), (false, shard, worker)] {
                let Ok((len, _)) = from.recv_from(&mut bytes) else { continue };
                idle = false;
                let is_own = bytes[4] >= 16;
                own += usize::from(is_own);
                let passed = !is_own || lose.is_none_or(|lose| own % lose != 0);
                if is_own {
                    let at = Time::ZERO + Span::from_secs_f64(began.elapsed().as_secs_f64());
                    seen.push(Seen { at, rank, up, passed, bytes: bytes[..len].to_vec() });
                }
                let receiver = match up {
                    true => rendezvous.shard,
                    false => rendezvous.workers.lock().unwrap()[&(rank as u16)],
                };
                if passed {
                    to.send_to(&bytes[..len], receiver).unwrap();
                }
            }
        }
        if idle {
            thread::sleep(Duration::from_micros(20));
        }
    }
    seen
}

/// One collective over the real driver: the record, and each rank's sum.
fn real(world_size: u16, lose: Option<usize>) -> (Vec<Seen>, Vec<Vec<f32>>) {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let options = ShardOptions {
        shard: TreeId(0),
        listen,
        receive_buffer: 8 << 20,
        send_buffer: 8 << 20,
        incarnation: None,
        switch_options: SwitchOptions::defaults(Defaults::Real),
    };
    let handle = ShardHandle::start(&options).unwrap();
    let sockets = || (0..world_size).map(|_| socket()).collect::<Vec<UdpSocket>>();
    let (to_workers, to_shard) = (sockets(), sockets());
    let addrs = |sockets: &[UdpSocket]| sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    let rendezvous = Arc::new(Tapped {
        shard: handle.udp_addr(),
        handle,
        towards_workers: addrs(&to_workers),
        towards_shard: addrs(&to_shard),
        workers: Mutex::default(),
        all_here: Barrier::new(world_size.into()),
    });
    let (stop, done) = (AtomicBool::new(false), Barrier::new(world_size.into()));
    thread::scope(|scope| {
        let (tapped, stop, done) = (&*rendezvous, &stop, &done);
        let tap = scope.spawn(move || tap(&to_workers, &to_shard, tapped, lose, stop));
        let worker = |rank: u16| {
            let rendezvous: Arc<dyn Rendezvous> = rendezvous.clone();
            scope.spawn(move || {
                let options = ConnectOptions {
                    switch: tapped.shard.to_string(),
                    job: "tapped".into(),
                    rank,
                    world_size,
                    timeout: PATIENCE,
                    protocol: protocols::named("switchml").unwrap(),
                    options: protocols::named("switchml").unwrap().options.defaults(),
                    elements_per_packet: Some(ELEMENTS_PER_PACKET),
                    slots: Some(SLOTS),
                    trees: None,
                    cores: None,
                };
                let group = Group::connect_through(&options, rendezvous).unwrap();
                let mut data = input(rank.into());
                group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                // Nobody goes while another may still ask for a result again.
                done.wait();
                data
            })
        };
        let workers: Vec<_> = (0..world_size).map(worker).collect();
        let sums = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        stop.store(true, Ordering::Relaxed);
        (tap.join().unwrap(), sums)
    })
}

/// Without the number of whoever contributed last or asked again: a resend names another one.
fn nameless(bytes: &[u8]) -> Vec<u8> {
    [&bytes[..24], &[0, 0], &bytes[26..]].concat()
}

/// What a fresh switch makes of the packets that reached the real one: every result, for each rank.
fn replay_switch(world_size: u16, seen: &[Seen]) -> Vec<BTreeSet<Vec<u8>>> {
    let job = config(world_size);
    let members: Vec<PortId> = (0..world_size).map(PortId).collect();
    let (shard, group, below) = (TreeId(0), GroupId(0), Below::workers(world_size));
    let switch = SwitchConfig { job: job.clone(), tree: shard, members: members.clone(), below, group, parent: None };
    let machine = protocols::named("switchml").unwrap().switch(Values::Elements, &switch);
    let (protocol, others) = (protocols::named("switchml").unwrap().code, Vec::new());
    let mut pipeline = Pipeline::default();
    pipeline.install(job.job, InstalledJob { protocol, key: job.key, members, others, machine });
    let (mut results, mut recorder) = (vec![BTreeSet::new(); world_size.into()], SwitchRecorder::default());
    for Seen { at, rank, bytes, .. } in seen.iter().filter(|seen| seen.up && seen.passed) {
        let mut bytes = bytes.clone();
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let verdict = recorder.packet(&mut pipeline, *at, PortId(*rank as u16), &mut packet, &NoQueues);
        let len = packet.len;
        let to = match verdict {
            Verdict::Group(_) => 0..usize::from(world_size),
            Verdict::Port(port) => port.index()..port.index() + 1,
            _ => 0..0,
        };
        for results in &mut results[to] {
            results.insert(nameless(&bytes[..len]));
        }
    }
    results
}

/// What a fresh worker makes of the packets that reached a real one: its packets in the order of their first sending,
/// and its sum.
fn replay_host(world_size: u16, rank: usize, seen: &[Seen]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let config = HostConfig::worker(config(world_size), Rank(rank as u16));
    let mut host = protocols::named("switchml").unwrap().host(Values::Elements, &config);
    let tensor = Box::new(ElementTensor::new(InPlaceStorage::new(input(rank)), ReduceOp::Sum));
    host.submit(Time::ZERO, Collective { tensor, deadline: None }).unwrap();
    let mut recorder = HostRecorder::default();
    recorder.drain(&mut *host, Time::ZERO);
    for Seen { at, bytes, .. } in seen.iter().filter(|seen| seen.rank == rank && !seen.up && seen.passed) {
        let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
        recorder.packet(&mut *host, *at, Addr::Switch(TreeId(0)), packet);
    }
    let Some(HostEvent::Done { tensor, .. }) = recorder.events.pop() else { panic!("rank {rank} is not done") };
    let mut sum = vec![0; 4 * ELEMENTS];
    tensor.read_output(0..ELEMENTS, &mut sum);
    (firsts(recorder.sent.into_iter().map(|made| made.bytes)), sum)
}

/// Every packet once, in the order of the first of each.
fn firsts(packets: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut known = BTreeSet::new();
    packets.filter(|packet| known.insert(packet.clone())).collect()
}

/// How a rank uses a slot: kind, phase, elements of the collective, bytes of the vector.
type Use = (u8, u32, u32, usize);

fn slot_and_use(header: &[u8], len: usize) -> (u16, Use) {
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
    (u16::from_be_bytes([header[26], header[27]]), (header[4], word(28), word(16), len - HEADER_LEN))
}

/// The uses of each slot by each rank, in their order.
type Uses = BTreeMap<(usize, u16), Vec<Use>>;

fn note(uses: &mut Uses, rank: usize, header: &[u8], len: usize) {
    let (slot, used) = slot_and_use(header, len);
    let uses = uses.entry((rank, slot)).or_default();
    if !uses.contains(&used) {
        uses.push(used);
    }
}

/// Notes what simulated hosts send.
struct Noted(Arc<Mutex<Uses>>, usize);

impl Tracer for Noted {
    fn record(&mut self, event: &TraceEvent, payload: &[u8]) {
        let from_host = event.kind == PacketEvent::Created && event.packet.src.index() < self.1;
        if from_host && payload.len() >= HEADER_LEN && payload[4] >= 16 {
            note(&mut self.0.lock().unwrap(), event.packet.src.index(), payload, usize::from(event.packet.bytes));
        }
    }
}

fn simulated(world_size: u16) -> Uses {
    let text = format!(
        "[network]\nstar = {{ hosts = {world_size} }}\nrate = \"1 Gbit/s\"\noverhead = 0\nshortest = 1\n[[job]]\n\
         protocol = \"switchml\"\nhosts = \"all\"\ntensor = \"{} B\"\nelements_per_packet = {ELEMENTS_PER_PACKET}\n\
         slots = {SLOTS}\n",
        4 * ELEMENTS
    );
    let mut simulation = experiment::build(&Config::parse(&text).unwrap()).unwrap();
    let uses = Arc::new(Mutex::default());
    simulation.fabric.set_tracer(Some(Box::new(Noted(Arc::clone(&uses), world_size.into()))));
    assert!(simulation.run_until_finished(Time::ZERO + Span::from_secs_f64(10.0)));
    drop(simulation.fabric.take_tracer());
    std::mem::take(&mut *uses.lock().unwrap())
}

fn check(world_size: u16, lose: Option<usize>) {
    let (seen, sums) = real(world_size, lose);
    assert_eq!(seen.iter().any(|seen| !seen.passed), lose.is_some());
    // Every rank sends every block, and gets its result, at least once.
    let blocks = ELEMENTS.div_ceil(ELEMENTS_PER_PACKET.into());
    assert!(seen.len() >= 2 * blocks * usize::from(world_size));

    let results = replay_switch(world_size, &seen);
    let mut uses = Uses::new();
    for rank in 0..usize::from(world_size) {
        let of_rank = |up: bool| seen.iter().filter(move |seen| seen.rank == rank && seen.up == up);
        let simulated: BTreeSet<Vec<u8>> = of_rank(false).map(|seen| nameless(&seen.bytes)).collect();
        assert!(simulated == results[rank], "rank {rank}: the switch has made other results in virtual time");

        let (sent, sum) = replay_host(world_size, rank, &seen);
        let really = firsts(of_rank(true).map(|seen| seen.bytes.clone()));
        assert!(really == sent, "rank {rank} sends other packets, or in another order, in virtual time");
        let real_sum: Vec<u8> = sums[rank].iter().flat_map(|value| value.to_be_bytes()).collect();
        assert!(real_sum == sum, "rank {rank} has other bits in virtual time");
        of_rank(true).for_each(|seen| note(&mut uses, rank, &seen.bytes, seen.bytes.len()));
    }
    assert_eq!(uses, simulated(world_size), "real and simulated ranks use their slots alike");
}

#[test]
fn two_workers_and_their_switch_make_the_same_packets_in_virtual_time() {
    check(2, None);
}

#[test]
fn two_workers_whose_packets_are_lost_do_too() {
    check(2, Some(17));
}

#[test]
fn four_workers_do_too() {
    check(4, None);
}

#[test]
fn four_workers_whose_packets_are_lost_do_too() {
    check(4, Some(29));
}
