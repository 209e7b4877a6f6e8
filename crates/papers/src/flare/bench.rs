//! A switch's processor that is given packets at their times, one after the other.

use serde::Deserialize;
use tributary_sim::cores::model::{Costs, Design, Handling, Modelled};
use tributary_sim::cores::steps::Kind;
use tributary_sim::cores::{Finished, Shape, Stretch, Subset};
use tributary_sim::rng::{Purpose, Rng};

use crate::{Context, Experiment, Findings, ReproduceError};

/// A packet: its block, its child, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packet {
    /// The block.
    pub block: u64,
    /// The child.
    pub child: u32,
    /// Bytes in the packet memory.
    pub bytes: u64,
}

/// A processor with this many cores, in clusters; a block's subset is one core or a cluster.
pub fn shape(cores: u32, cluster: u32, subset: u32) -> Result<Shape, ReproduceError> {
    let bad = |why: &str| Err(ReproduceError::Bad(why.into()));
    if cluster == 0 || cores == 0 || !cores.is_multiple_of(cluster) {
        return bad("cores come in whole clusters, of one core at least");
    }
    let subset = match subset {
        1 => Subset::Core,
        all if all == cluster => Subset::Cluster,
        _ => return bad("a subset is one core, or a cluster"),
    };
    // There is more memory than any of these experiments fills, because they measure how much is needed.
    Ok(Shape::ideal(cores / cluster, cluster, subset))
}

/// Why a switch holds fewer packets than equation 1 says.
pub const FEWER_PACKETS: &str =
    "the equation adds up the longest queues of all cores; bursts reach one core after the other here";

/// Equation 1: the packets that wait for a core. There are K cores in subsets of S, and P packets a block, which arrive
/// δ apart, and δ_c apart within their block, and are served in τ each.
pub fn equation_1([cores, subset, children]: [f64; 3], [gap, block_gap, service]: [f64; 3]) -> f64 {
    let core_gap = (subset * block_gap).min(cores * gap);
    (children / subset * (1.0 - core_gap / service)).max(0.0)
}

/// A processor, and the handlers that have ended.
pub struct Bench {
    /// The processor.
    pub processor: Modelled,
    /// Handlers that have ended, in that order.
    pub finished: Vec<Finished>,
}

impl Bench {
    /// A processor that records what its cores do.
    pub fn new(shape: Shape, handling: Handling) -> Bench {
        Bench { processor: Modelled::new(shape, handling).recording(), finished: Vec::new() }
    }

    /// A processor that does not record.
    pub fn plain(shape: Shape, handling: Handling) -> Bench {
        Bench { processor: Modelled::new(shape, handling), finished: Vec::new() }
    }

    /// A packet arrives.
    pub fn arrive(&mut self, now: u64, packet: Packet) -> Result<(), ReproduceError> {
        self.finished.extend(self.processor.advance(now));
        let Packet { block, child, bytes } = packet;
        self.processor
            .arrive(now, block, child, bytes)
            .map_err(|_| ReproduceError::Bad("the packet memory is full".into()))
    }

    /// Lets all packets arrive, in the order of their times, and serves them.
    pub fn run(&mut self, arrivals: &[(u64, Packet)]) -> Result<(), ReproduceError> {
        arrivals.iter().try_for_each(|&(at, packet)| self.arrive(at, packet))?;
        while let Some(next) = self.processor.next_time() {
            self.finished.extend(self.processor.advance(next));
        }
        Ok(())
    }

    /// When the last handler ended.
    pub fn end(&self) -> u64 {
        self.finished.last().map_or(0, |last| last.ended)
    }
}

/// How packets arrive: in groups of blocks whose packets take turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// How many blocks there are, a multiple of those that take turns.
    pub blocks: u64,
    /// How many packets each block has.
    pub children: u64,
    /// How many blocks take turns.
    pub staggered: u64,
    /// Cycles from packet to packet, on average.
    pub gap: f64,
    /// True if these times are random, with an exponential distribution.
    pub random: bool,
    /// Additional cycles between one group and the next.
    pub rest: f64,
}

impl Stream {
    /// All packets and their times.
    pub fn arrivals(&self, seed: u64) -> Vec<(u64, Packet)> {
        let Stream { blocks, children, staggered, gap, random, rest } = *self;
        let (mut rng, mut at) = (Rng::new(seed, Purpose::Arrivals, 0), 0.0);
        let turns = children * staggered;
        let packet = |number: u64| {
            let (group, turn) = (number / turns, number % turns);
            if number > 0 {
                at += gap * if random { rng.exponential() } else { 1.0 };
                at += if turn == 0 { rest } else { 0.0 };
            }
            let block = group * staggered + turn % staggered;
            (at as u64, Packet { block, child: (turn / staggered) as u32, bytes: 1 })
        };
        (0..blocks.div_ceil(staggered) * turns).map(packet).collect()
    }
}

// Figures 6, 8 and 9: what four cores do with the packets of one block, step by step.

/// One block on one cluster.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    /// How packets are summed.
    pub design: DesignName,
    /// L: cycles to combine.
    pub combine: u64,
    /// Cycles to copy a packet into an empty buffer.
    pub copy: u64,
    /// Cycles to read the sum back and send it.
    pub send: u64,
    /// The packets in the order of arrival: the time and the child. Here cores have the children's numbers.
    pub arrivals: Vec<(u64, u32)>,
}

/// The paper's designs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DesignName {
    /// §6.1 and §6.2: this number of buffers.
    Buffers(u32),
    /// §6.3.
    Tree,
}

impl From<DesignName> for Design {
    fn from(name: DesignName) -> Design {
        match name {
            DesignName::Buffers(count) => Design::Buffers(count.max(1)),
            DesignName::Tree => Design::Tree,
        }
    }
}

/// A period of a core, in words.
fn words(stretch: &Stretch) -> String {
    let Stretch { kind, buffer, from, to, .. } = stretch;
    let what = match kind {
        None => format!("waits for B{buffer}"),
        Some(Kind::Start) => "starts".into(),
        Some(Kind::Copy) => format!("copies into B{buffer}"),
        Some(Kind::Combine) => format!("combines with B{buffer}"),
        Some(Kind::Merge) => format!("merges (B{buffer})"),
        Some(Kind::Send) => "sends the sum".into(),
        // Only handlers of sparse blocks have other steps.
        Some(other) => other.name().into(),
    };
    format!("{what} {from}-{to}")
}

impl Experiment for Timeline {
    /// Findings, for child C: `buffer-C`, the buffer that took its packet; `waits-C`, cycles of waiting;
    /// `merges-C`; `ends-C`; and `sends-C`, 1 if it sends the sum. `merged-C-N` is the N-th buffer that it merges.
    /// `waits`, `merges` and `end` are of all children.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let children = self.arrivals.len() as u32;
        let in_order = self.arrivals.is_sorted_by_key(|(at, _)| *at);
        if children == 0 || !in_order || (0..children).any(|own| self.arrivals.iter().all(|(_, child)| *child != own)) {
            return Err(ReproduceError::Bad("arrivals have each child once, in the order of their times".into()));
        }
        let costs = Costs { start: 0, copy: self.copy, combine: self.combine, merge: self.combine, send: self.send };
        let handling = Handling { design: self.design.into(), children, buffer_bytes: 1, costs };
        let mut bench = Bench::new(shape(children, children, children)?, handling);
        let packet = |&(at, child): &(u64, u32)| (at, Packet { block: 0, child, bytes: 1 });
        bench.run(&self.arrivals.iter().map(packet).collect::<Vec<_>>())?;
        let mut findings = Findings::default();
        let stretches = bench.processor.stretches();
        for finished in &bench.finished {
            let child = finished.packet.child;
            let own: Vec<_> = stretches.iter().filter(|stretch| stretch.packet.child == child).collect();
            describe(child, &own, &mut findings);
            findings.value(format!("ends-{child}"), finished.ended as f64);
            findings.value(format!("sends-{child}"), f64::from(u8::from(finished.sent.is_some())));
            let story: Vec<String> = own.iter().map(|stretch| words(stretch)).collect();
            findings.note(format!("C{child}: {}.", story.join(", ")));
        }
        let merges = stretches.iter().filter(|stretch| stretch.kind == Some(Kind::Merge)).count();
        findings.value("waits", bench.processor.counters().lock_waiting as f64);
        findings.value("merges", merges as f64);
        findings.value("end", bench.end() as f64);
        Ok(findings)
    }
}

/// The steps of the handler of a child's packet.
fn describe(child: u32, own: &[&Stretch], findings: &mut Findings) {
    let waits: u64 = own.iter().filter(|stretch| stretch.kind.is_none()).map(|stretch| stretch.to - stretch.from).sum();
    findings.value(format!("waits-{child}"), waits as f64);
    let combines = own.iter().find(|stretch| matches!(stretch.kind, Some(Kind::Copy | Kind::Combine)));
    if let Some(combines) = combines {
        findings.value(format!("buffer-{child}"), f64::from(combines.buffer));
    }
    let merged: Vec<_> = own.iter().filter(|stretch| stretch.kind == Some(Kind::Merge)).collect();
    findings.value(format!("merges-{child}"), merged.len() as f64);
    for (number, stretch) in merged.iter().enumerate() {
        findings.value(format!("merged-{child}-{number}"), f64::from(stretch.buffer));
    }
}
