//! What one packet costs Canary's switch, beside SwitchML's in the same run: all packets of a block, and stage by stage.

mod switchml_setup;

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::canary::wire as canary;
use tributary_proto::collective::tensor::Spec;
use tributary_proto::collective::values::Values;
use tributary_proto::contract::config::{FlushTimeout, SharedSwitchConfig};
use tributary_proto::contract::ids::{GroupId, NodeId, PortId, PortSet, Rank};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::Common;
use tributary_proto::parts::look_ahead::LookAhead;

use self::switchml_setup::{JOB, KEY, RUN, SLOTS, WORLD, integers, job, pipeline};

/// Elements of a packet in Canary's prototype, where the machine's own part shows most, and in its evaluation (§5.2).
const K: [u16; 2] = [32, 256];
/// So both protocols have accumulators of the same size.
const DESCRIPTORS: u32 = 2 * SLOTS as u32;
const SWITCH: NodeId = NodeId(100);
/// How long a partial sum waits.
const TIMEOUT: Span = Span::from_micros(1);
/// The stage at which partial sums leave because their time is up, before the leader's sum comes.
const LATE: usize = WORLD as usize;
/// The last rank leads: its contribution never comes to the switch, but its sum does.
const LEADER: NodeId = NodeId(WORLD as u32 - 1);

/// Writes the packet of a stage, which is the port, for a block.
type Write = Box<dyn Fn(usize, usize, &mut [u8])>;

/// A switch, and the packets of a block: one of each port, in turn.
struct Subject {
    pipeline: Pipeline,
    packet: Write,
    packet_len: usize,
    verdict: Box<dyn Fn(usize) -> Verdict>,
    block: usize,
    now: Time,
    /// Partial sums leave because their time is up.
    flushes_late: bool,
}

fn switchml_subject(k: u16) -> Subject {
    let job = job(k);
    let (pipeline, updates) = (pipeline(&job), integers(&job));
    Subject {
        pipeline,
        packet_len: updates[0].len(),
        packet: Box::new(move |rank, block, bytes| {
            bytes.copy_from_slice(&updates[block % updates.len()]);
            bytes[17] = rank as u8;
            bytes[24..28].copy_from_slice(&((block / updates.len()) as u32).to_be_bytes());
        }),
        verdict: Box::new(|rank| match rank + 1 == usize::from(WORLD) {
            true => Verdict::Group(GroupId(0)),
            false => Verdict::Consume,
        }),
        block: 0,
        now: Time::ZERO,
        flushes_late: false,
    }
}

/// A leader's own leaf, which sees all contributions there are; or a leaf of many, which sees its own hosts' alone and
/// cannot know that they are all.
fn canary_subject(k: u16, flushes_late: bool) -> Subject {
    let hosts = if flushes_late { 2 * WORLD } else { WORLD };
    let config = SharedSwitchConfig {
        node: SWITCH,
        descriptors: DESCRIPTORS,
        partitions: 1,
        elements_per_packet: k,
        timeout: FlushTimeout::Fixed(TIMEOUT),
        lease: Span::from_millis(100),
    };
    let mut pipeline = Pipeline::default();
    pipeline.share(
        tributary_proto::canary::PROTOCOL.code,
        tributary_proto::canary::PROTOCOL.shared_switch(Values::Elements, &config).unwrap(),
    );
    let (members, others) = ((0..WORLD).map(PortId).collect(), Vec::new());
    let installed =
        InstalledJob { protocol: tributary_proto::canary::PROTOCOL.code, key: KEY, members, others, machine: None };
    pipeline.install(JOB, installed);

    let stages: Vec<Vec<u8>> = (0..WORLD).map(|rank| canary_packet(rank, hosts, k)).collect();
    Subject {
        pipeline,
        packet_len: stages[0].len(),
        packet: Box::new(move |stage, block, bytes| {
            bytes.copy_from_slice(&stages[stage]);
            bytes[20..24].copy_from_slice(&(block as u32).to_be_bytes());
        }),
        verdict: Box::new(move |stage| match stage as u16 {
            rank if rank + 2 == WORLD && !flushes_late => Verdict::Route(LEADER),
            rank if rank + 2 <= WORLD => Verdict::Consume,
            _ => {
                let mut children = PortSet::EMPTY;
                (0..WORLD - 1).for_each(|port| assert!(children.insert(PortId(port))));
                Verdict::Multicast(children)
            }
        }),
        block: 0,
        now: Time::ZERO,
        flushes_late,
    }
}

/// A contribution, or the leader's sum.
fn canary_packet(rank: u16, hosts: u16, k: u16) -> Vec<u8> {
    let is_sum = rank + 1 == WORLD;
    let kind = if is_sum { canary::Kind::Broadcast } else { canary::Kind::Reduce };
    let mut bytes = vec![0; canary::HEADER_LEN + 4 * usize::from(k)];
    Common { protocol: tributary_proto::canary::PROTOCOL.code, kind: kind as u8, job: JOB, key: KEY }.emit(&mut bytes);
    let header = canary::Header {
        destination: if is_sum { SWITCH } else { LEADER },
        id: 0,
        counter: if is_sum { hosts } else { 1 },
        hosts,
        children: 0,
        switch_address: canary::NO_SWITCH,
        root: SWITCH,
        bypass: is_sum,
        multicast: is_sum,
        to_leader: true,
        shard: 0,
        attempt: 0,
        wid: Rank(rank),
        look_ahead: LookAhead::UNKNOWN,
        spec: Spec::allreduce(1 << 20, DType::I32, ReduceOp::Sum),
        contributors: canary::proof(canary::RankProof::of(Rank(rank)), 0, 0),
    };
    header.emit(&mut bytes);
    bytes[canary::HEADER_LEN..]
        .iter_mut()
        .zip([0, 0, 0, 7].into_iter().cycle())
        .for_each(|(byte, value)| *byte = value);
    bytes
}

impl Subject {
    /// All stages of a run of blocks; what the named ones took. Packets are written outside of that: they come from the
    /// kernel.
    fn run(&mut self, scratch: &mut [Vec<u8>], stages: &Range<usize>) -> Duration {
        let mut spent = Duration::ZERO;
        for stage in 0..usize::from(WORLD) {
            if self.flushes_late && stage + 1 == usize::from(WORLD) {
                let took = self.flush(&mut scratch[0]);
                spent += if stages.contains(&LATE) { took } else { Duration::ZERO };
            }
            for (bytes, block) in scratch.iter_mut().zip(self.block..) {
                (self.packet)(stage, block, bytes);
            }
            let expected = (self.verdict)(stage);
            let start = Instant::now();
            for bytes in &mut *scratch {
                let mut packet = PacketMut::new(black_box(bytes), Ecn::NotCapable);
                let verdict = self.pipeline.process(self.now, PortId(stage as u16), &mut packet, &NoQueues);
                assert_eq!(verdict, expected);
            }
            if stages.contains(&stage) {
                spent += start.elapsed();
            }
        }
        self.block += RUN;
        spent
    }

    fn flush(&mut self, buf: &mut [u8]) -> Duration {
        self.now += TIMEOUT;
        let start = Instant::now();
        assert_eq!(self.pipeline.poll_timeout(), Some(self.now));
        self.pipeline.handle_timeout(self.now);
        let mut flushed = 0;
        while let Some(emission) = self.pipeline.poll_transmit(self.now, buf) {
            assert_eq!(emission.verdict, Verdict::Route(LEADER));
            flushed += 1;
        }
        assert_eq!(flushed, RUN);
        start.elapsed()
    }
}

/// Of 8 packets of a block SwitchML's switch gets 8 contributions. Canary's gets 7 and the sum of the leader.
fn switches(c: &mut Criterion) {
    let last = usize::from(WORLD) - 1;
    let whole = ("whole block", 0..LATE + 1);
    let of_switchml = [whole.clone(), ("first", 0..1), ("added", 1..last), ("last", last..last + 1)];
    let of_root =
        [whole.clone(), ("first", 0..1), ("added", 1..last - 1), ("last", last - 1..last), ("sum", last..LATE)];
    let of_leaf = [whole, ("flushed late", LATE..LATE + 1)];
    for k in K {
        measure(c, &format!("packet/switchml/{k}"), &of_switchml, || switchml_subject(k));
        measure(c, &format!("packet/canary/{k}"), &of_root, || canary_subject(k, false));
        measure(c, &format!("packet/canary-leaf/{k}"), &of_leaf, || canary_subject(k, true));
    }
}

fn measure(c: &mut Criterion, name: &str, parts: &[(&str, Range<usize>)], subject: impl Fn() -> Subject) {
    let mut group = c.benchmark_group(name);
    for (part, stages) in parts {
        // What a switch sends by itself is part of what the packets cost that come in.
        let packets = RUN * stages.len().min(usize::from(WORLD));
        group.throughput(Throughput::Elements(packets as u64));
        let mut subject = subject();
        let mut scratch = vec![vec![0; subject.packet_len]; RUN];
        group.bench_function(*part, |b| {
            b.iter_custom(|iterations| (0..iterations).map(|_| subject.run(&mut scratch, stages)).sum());
        });
    }
    group.finish();
}

criterion_group!(benches, switches);
criterion_main!(benches);
