//! A switch's processor that is given packets at their times, one after the other.

use tributary_sim::cores::model::{Handling, Modelled};
use tributary_sim::cores::{Finished, Shape, Subset};
use tributary_sim::rng::{Purpose, Rng};

use crate::ReproduceError;

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
