//! What one packet costs the switches of the protocols, in one run: all packets of a block, and stage by stage.

mod best_effort;
mod canary;
mod flare;
mod panama;
mod setup;
mod switchml;

use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};

/// Elements of a packet in Canary's prototype, where the machine's own part shows most, and in its evaluation (§5.2).
const K: [u16; 2] = [32, 256];
/// Ports that packets come from.
const WORLD_SIZE: u16 = 8;
/// Blocks under way.
const SLOTS: u16 = 256;
/// Packets of one port for adjacent blocks, as a driver hands them over.
const RUN: usize = 32;
/// How long a partial sum waits.
const TIMEOUT: Span = Span::from_micros(1);
/// The stage at which partial sums leave because their time is up, before what comes last.
const LATE: usize = WORLD_SIZE as usize;

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
    /// After which stage the switch sends a sum of its own for each block, and where to, if it does.
    sums: Option<(usize, Verdict)>,
    /// Where partial sums go that leave because their time is up, if they do.
    flushes_to: Option<Verdict>,
}

impl Subject {
    /// All stages of a run of blocks; what the named ones took. Packets are written outside of that: they come from the
    /// kernel.
    fn run(&mut self, scratch: &mut [Vec<u8>], stages: &Range<usize>) -> Duration {
        let mut spent = Duration::ZERO;
        for stage in 0..usize::from(WORLD_SIZE) {
            if let Some(to) = self.flushes_to
                && stage + 1 == usize::from(WORLD_SIZE)
            {
                let took = self.flush(to, &mut scratch[0]);
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
            if let Some((last, to)) = self.sums
                && stage == last
            {
                self.drain(to, &mut scratch[0]);
            }
            if stages.contains(&stage) {
                spent += start.elapsed();
            }
        }
        self.block += RUN;
        spent
    }

    fn flush(&mut self, to: Verdict, buf: &mut [u8]) -> Duration {
        self.now += TIMEOUT;
        let start = Instant::now();
        assert_eq!(self.pipeline.poll_timeout(), Some(self.now));
        self.pipeline.handle_timeout(self.now);
        self.drain(to, buf);
        start.elapsed()
    }

    /// Takes the packets that the switch makes itself: one for each block of the run.
    fn drain(&mut self, to: Verdict, buf: &mut [u8]) {
        let mut sent = 0;
        while let Some(emission) = self.pipeline.poll_transmit(self.now, buf) {
            assert_eq!(emission.verdict, to);
            sent += 1;
        }
        assert_eq!(sent, RUN);
    }
}

fn measure(c: &mut Criterion, name: &str, stages_of: &[(&str, Range<usize>)], subject: impl Fn() -> Subject) {
    let mut group = c.benchmark_group(name);
    for (stage, stages) in stages_of {
        // What a switch sends by itself is part of what the packets cost that come in.
        let packets = RUN * stages.len().min(usize::from(WORLD_SIZE));
        group.throughput(Throughput::Elements(packets as u64));
        let mut subject = subject();
        let mut scratch = vec![vec![0; subject.packet_len]; RUN];
        group.bench_function(*stage, |b| {
            b.iter_custom(|iterations| (0..iterations).map(|_| subject.run(&mut scratch, stages)).sum());
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default();
    targets =
        switchml::switch,
        canary::switch,
        flare::switch,
        panama::switch,
        best_effort::switch,
}
criterion_main!(benches);
