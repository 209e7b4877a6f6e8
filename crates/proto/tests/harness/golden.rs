//! Golden packets: files of hexadecimal bytes in the repository's `tests/golden`, with comments after `#`; and small
//! jobs whose machines write them.
//!
//! A change of the wire format is seen in them first. If it is wanted: raise `wire::VERSION`, run with
//! `TRIBUTARY_BLESS=1`, and look at the difference.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, FabricPlan, HostConfig, JobConfig, Parent, SwitchConfig};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::options::Options;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

pub const JOB: JobId = JobId(0x0102);
pub const KEY: JobKey = JobKey(0xA1A2_A3A4_A5A6_A7A8);

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(format!("{name}.hex"))
}

/// The bytes of a golden packet.
pub fn bytes(name: &str) -> Vec<u8> {
    let path = path(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let fields = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let bytes = fields.flat_map(str::split_whitespace).map(|byte| u8::from_str_radix(byte, 16));
    bytes.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares packets, each with a line that explains it, with a file of hexadecimal digits.
pub fn check(name: &str, packets: &[(&str, Vec<u8>)]) {
    let mut text = String::new();
    for (what, bytes) in packets {
        writeln!(text, "# {what}").unwrap();
        for line in bytes.chunks(16) {
            let words: Vec<String> =
                line.chunks(2).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
            writeln!(text, "{}", words.join(" ")).unwrap();
        }
    }
    let path = path(name);
    if std::env::var_os("TRIBUTARY_BLESS").is_some() {
        std::fs::write(&path, &text).expect("the golden file is written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, golden, "{name}: the bytes on the wire have changed");
}

/// A job of two.
pub fn job(protocol: &Protocol) -> JobConfig {
    JobConfig {
        job: JOB,
        key: KEY,
        protocol: protocol.code,
        world_size: 2,
        slots: 2,
        elements_per_packet: 4,
        trees: 1,
        levels: false,
        options: in_fixed_point(protocol),
    }
}

/// The options of a protocol for sums in fixed point, in which it has all its packets, unless sums have an order, which
/// scaled ones lack.
fn in_fixed_point(protocol: &Protocol) -> Options {
    let specs = protocol.options.specs;
    let has_choice = specs.contains(&Numbers::OPTION) && specs.iter().all(|spec| spec.name != "reproducible");
    let chosen = has_choice.then(|| (Numbers::OPTION.name.to_owned(), "fixed".to_owned()));
    protocol.options.read(&chosen.into_iter().collect()).expect("it is an option")
}

/// A worker of that job.
pub fn host(protocol: &Protocol, rank: u16, fabric: FabricPlan) -> Box<dyn Host> {
    let config = HostConfig { fabric, ..HostConfig::worker(job(protocol), Rank(rank)) };
    protocol.host(Values::Elements, &config)
}

/// A sum of floats, with a deadline.
pub fn f32s(values: &[f32]) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values.to_vec()), ReduceOp::Sum);
    Collective { tensor: Box::new(tensor), deadline: Some(Time::ZERO + Span::from_millis(100)) }
}

/// A broadcast of words from `root`.
pub fn words(root: u16, values: &[i32]) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values.to_vec()), ReduceOp::Sum).from(Rank(root));
    Collective { tensor: Box::new(tensor), deadline: None }
}

/// What the host sends now.
pub fn sent(host: &mut Box<dyn Host>, now: Time) -> Vec<u8> {
    let mut buf = vec![0; host.max_packet_len()];
    let len = host.poll_transmit(now, &mut buf).expect("a packet").len;
    buf.truncate(len);
    buf
}

/// A switch of that job, or of one of this many workers.
pub fn switch(protocol: &Protocol, workers: u16, parent: Option<Parent>) -> Box<dyn Switch> {
    switch_of(protocol, job(protocol), workers, parent)
}

/// A switch of another job.
pub fn switch_of(protocol: &Protocol, job: JobConfig, workers: u16, parent: Option<Parent>) -> Box<dyn Switch> {
    let config = SwitchConfig {
        job,
        tree: TreeId(0),
        members: (0..workers).map(PortId).collect(),
        below: Below::workers(workers),
        group: GroupId(0),
        parent,
    };
    protocol.switch(Values::Elements, &config).expect("it sums in switches")
}

/// What a switch does with a packet, and what becomes of the packet.
pub fn processed(switch: &mut Box<dyn Switch>, from: u16, packet: &[u8], ecn: Ecn) -> (Verdict, Vec<u8>) {
    let mut bytes = packet.to_vec();
    let verdict = switch.process(Time::ZERO, PortId(from), &mut PacketMut::new(&mut bytes, ecn), &NoQueues);
    (verdict, bytes)
}

/// What a switch sends of its own.
pub fn notice(switch: &mut Box<dyn Switch>) -> Vec<u8> {
    let mut buf = vec![0; 1500];
    let len = switch.poll_transmit(Time::ZERO, &mut buf).expect("a notice").len;
    buf.truncate(len);
    buf
}

/// The packets of a sum of floats that two ranks scale alike.
pub struct Scaled {
    /// What rank 1 sends, so that ranks agree on a scale.
    pub probe: Vec<u8>,
    /// Its block.
    pub update: Vec<u8>,
    /// What the switch does with the last block.
    pub verdict: Verdict,
    /// The result, which may be a packet of its own.
    pub result: Vec<u8>,
}

/// Such a sum in a job with these options, of these floats of each rank.
pub fn scaled(protocol: &Protocol, given: &[(&str, &str)], floats: impl Fn(u16) -> Vec<f32>) -> Scaled {
    let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let job = JobConfig { options: protocol.options.read(&given).expect("they are options"), ..job(protocol) };
    let mut hosts = [0, 1].map(|rank| {
        let mut host = protocol.host(Values::Elements, &HostConfig::worker(job.clone(), Rank(rank)));
        host.submit(Time::ZERO, f32s(&floats(rank))).expect("it is a sum of floats");
        host
    });
    let mut switch = switch_of(protocol, job.clone(), 2, None);
    let mut both = |packets: &[Vec<u8>; 2]| {
        processed(&mut switch, 0, &packets[0], Ecn::NotCapable);
        processed(&mut switch, 1, &packets[1], Ecn::NotCapable)
    };
    let probes = hosts.each_mut().map(|host| sent(host, Time::ZERO));
    let (_, agreed) = both(&probes);
    for host in &mut hosts {
        let packet = Packet { bytes: &agreed, wire_len: agreed.len(), ecn: Ecn::NotCapable };
        host.handle_packet(Time::ZERO, Addr::Switch(TreeId(0)), packet).expect("it is the answer");
    }
    let updates = hosts.each_mut().map(|host| sent(host, Time::ZERO));
    let (verdict, last) = both(&updates);
    let result = if verdict == Verdict::Consume { notice(&mut switch) } else { last };
    let [[_, probe], [_, update]] = [probes, updates];
    Scaled { probe, update, verdict, result }
}
