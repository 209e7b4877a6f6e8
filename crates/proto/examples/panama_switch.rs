//! PANAMA's switch as a filter: it reads packets, a line each, and says what becomes of them. The tests of
//! `dataplanes/panama` hold the hardware design against it.
//!
//! ```text
//! tree T JOB KEY TID TREES SLOTS ELEMENTS FIRST PARENT CHILD PORT:RANKS ...   installs a tree as number T
//! remove T
//! packet T PORT ECN HEX
//! state T
//! ```
//!
//! `ELEMENTS` are those of a full packet, `FIRST` is the first VID, `PARENT` the port of the parent switch or `-`. Ports
//! are in the order of `wid`, each with the number of ranks behind it; more than one is a switch. A packet is answered by
//! `drop REASON`, `consume` or `out WAY ECN HEX`, then a line `notice WAY ECN HEX` for each packet that the switch makes
//! by itself, then `.`; a state by `state EXPECTED EPOCH LOST_VIDS`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, Write as _};

use tributary_proto::contract::config::{Below, JobConfig, Parent, SwitchConfig};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::metric::MetricValue;
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::panama::{PROTOCOL, Panama};

/// One tree of a job, as a switch has it.
struct Tree {
    job: JobId,
    pipeline: Pipeline,
}

fn number<'a>(words: &mut impl Iterator<Item = &'a str>) -> u64 {
    words.next().expect("a number").parse().expect("a number")
}

fn ports(words: &mut dyn Iterator<Item = &str>) -> (Vec<PortId>, Vec<Below>) {
    let mut next_rank = 0;
    let child = |word: &str| {
        let (port, ranks) = word.split_once(':').expect("PORT:RANKS");
        let count: u16 = ranks.parse().expect("a number of ranks");
        let ranks: Vec<Rank> = (next_rank..next_rank + count).map(Rank).collect();
        next_rank += count;
        let below = if count == 1 { Below::Worker(ranks[0]) } else { Below::Switch(ranks) };
        (PortId(port.parse().expect("a port")), below)
    };
    words.map(child).unzip()
}

fn install<'a>(words: &mut impl Iterator<Item = &'a str>) -> Tree {
    let mut next = || number(words);
    let (job, key) = (JobId(next() as u16), JobKey(next()));
    let (tree, trees, slots, elements) = (TreeId(next() as u16), next() as u16, next() as u16, next() as u16);
    let first = next() as u32;
    let (parent, child) = (words.next().expect("a port or -"), number(words) as u16);
    let parent = parent.parse().ok().map(|port| Parent { port: PortId(port), child: ChildId(child) });
    let (members, below) = ports(words);
    let config = JobConfig {
        job,
        key,
        protocol: PROTOCOL.code,
        world_size: below.iter().map(|below| below.ranks().len() as u16).sum(),
        slots,
        elements_per_packet: elements,
        trees,
        levels: parent.is_some() || below.iter().any(|below| matches!(below, Below::Switch(_))),
        options: PROTOCOL.options.read(&BTreeMap::new()).expect("nothing is chosen"),
    };
    let members_too = members.clone();
    let config = SwitchConfig { job: config, tree, members, below, group: GroupId(0), parent };
    let installed = InstalledJob {
        protocol: PROTOCOL.code,
        key,
        members: members_too,
        others: parent.iter().map(|parent| parent.port).collect(),
        machine: Some(Box::new(Panama::starting_at(Values::Elements, &config, first))),
    };
    let mut pipeline = Pipeline::default();
    pipeline.install(job, installed);
    Tree { job, pipeline }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two hexadecimal digits");
    (0..hex.len() / 2).map(|i| digits(2 * i)).collect()
}

fn line(out: &mut String, what: &str, verdict: Verdict, ecn: Ecn, bytes: &[u8]) {
    let way = match verdict {
        Verdict::Group(_) => "group".to_owned(),
        Verdict::Port(port) => port.0.to_string(),
        other => panic!("not a way out: {other:?}"),
    };
    write!(out, "{what} {way} {} ", [0, 2, 3][ecn as usize]).expect("a string takes it");
    bytes.iter().for_each(|byte| write!(out, "{byte:02x}").expect("a string takes it"));
    out.push('\n');
}

fn packet<'a>(tree: &mut Tree, words: &mut impl Iterator<Item = &'a str>, out: &mut String) {
    let port = PortId(number(words) as u16);
    let ecn = [Ecn::NotCapable, Ecn::Capable, Ecn::Capable, Ecn::CongestionExperienced][number(words) as usize];
    let mut bytes = bytes(words.next().unwrap_or_default());
    let mut packet = PacketMut::new(&mut bytes, ecn);
    let verdict = tree.pipeline.process(Time::ZERO, port, &mut packet, &NoQueues);
    let (len, ecn) = (packet.len, packet.ecn);
    match verdict {
        Verdict::Drop(reason) => writeln!(out, "drop {}", reason.name()).expect("a string takes it"),
        Verdict::Consume => out.push_str("consume\n"),
        verdict => line(out, "out", verdict, ecn, &bytes[..len]),
    }
    let mut buf = vec![0; 1 << 14];
    while let Some(emission) = tree.pipeline.poll_transmit(Time::ZERO, &mut buf) {
        line(out, "notice", emission.verdict, emission.ecn, &buf[..emission.len]);
    }
    out.push_str(".\n");
}

fn state(tree: &Tree, out: &mut String) {
    let report = tree.pipeline.report(tree.job).and_then(|job| job.machine).expect("it has a machine");
    let lost = report.metrics.iter().find(|metric| metric.name == "lost_vids").expect("PANAMA counts it").value;
    let MetricValue::Counter(lost) = lost else { panic!("it is a counter") };
    writeln!(out, "state {} {} {lost}", report.orders[0].expected, report.orders[0].epoch).expect("a string takes it");
}

fn main() {
    let (mut trees, mut stdout): (BTreeMap<u64, Tree>, _) = (BTreeMap::new(), std::io::stdout().lock());
    for input in std::io::stdin().lock().lines() {
        let (input, mut out) = (input.expect("a line"), String::new());
        let mut words = input.split_whitespace();
        let what = words.next().unwrap_or_default();
        let at = number(&mut words);
        match what {
            "tree" => drop(trees.insert(at, install(&mut words))),
            "remove" => drop(trees.remove(&at)),
            "packet" => packet(trees.get_mut(&at).expect("the tree is installed"), &mut words, &mut out),
            "state" => state(&trees[&at], &mut out),
            other => panic!("what is `{other}`?"),
        }
        stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()).expect("somebody reads");
    }
}
