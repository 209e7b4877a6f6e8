//! Figure 5 and equation 1: packets that wait for cores under hierarchical scheduling, with packets of a block
//! staggered or not.

use serde::Deserialize;
use tributary_sim::cores::Shape;
use tributary_sim::cores::model::{Costs, Design, Handling};

use super::bench::{Bench, FEWER_PACKETS, Packet, Stream, equation_1};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queues {
    /// K.
    pub cores: u32,
    /// P: packets of a block.
    pub children: u64,
    /// τ: cycles of a handler.
    pub service: u64,
    /// δ: cycles from packet to packet.
    pub apart: u64,
    /// How many rounds there are; in each, each of as many blocks as there are cores has its packets in a row.
    pub rounds: u64,
    /// The scenarios.
    pub scenarios: Vec<Scenario>,
}

/// One way to send and to schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Findings are named after it.
    pub name: String,
    /// S: 1, or all cores.
    pub subset: u32,
    /// Blocks whose packets take turns: δ_c / δ.
    pub staggered: u64,
}

impl Experiment for Queues {
    /// Findings, for each scenario: `<name>-queue`, the most packets that wait for core 0 (or all cores of its subset);
    /// `<name>-packets`, the most in the switch; `<name>-burst` and `<name>-idle`, the time from the first packet of a
    /// block at its home to behind the last, and from there to the next block's first; `<name>-equation-queue` and
    /// `-equation-packets`, by equation 1.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for scenario in &self.scenarios {
            let Scenario { name, subset, staggered } = scenario;
            let shape = super::bench::shape(self.cores, self.cores, *subset)?;
            if *staggered == 0 || self.children == 0 || self.apart == 0 || self.service == 0 {
                return Err(ReproduceError::Bad("children, times and blocks that take turns are one at least".into()));
            }
            let costs = Costs { combine: self.service, ..Costs::default() };
            let children = self.children as u32;
            let handling = Handling { design: Design::Apart, children, buffer_bytes: 0, costs };
            let arrivals = self.arrivals(*staggered);
            let mut bench = Bench::new(shape, handling);
            bench.run(&arrivals)?;
            findings.value(format!("{name}-queue"), bench.processor.queue(0).peak() as f64);
            findings.value(format!("{name}-packets"), bench.processor.counters().packets.peak() as f64);
            let (burst, idle) = self.bursts(shape, &arrivals);
            findings.value(format!("{name}-burst"), burst as f64);
            findings.value(format!("{name}-idle"), idle as f64);
            let times = [self.apart, self.apart * staggered, self.service].map(|cycles| cycles as f64);
            let [cores, subset, children] = [self.cores.into(), shape.subset_cores().into(), self.children as f64];
            let queue = equation_1([cores, subset, children], times);
            findings.value(format!("{name}-equation-queue"), queue);
            findings.value(format!("{name}-equation-packets"), (queue + 1.0) * cores);
            findings.cause(format!("{name}-packets"), FEWER_PACKETS);
        }
        Ok(findings)
    }
}

impl Queues {
    /// One packet after the other, of blocks that take turns.
    fn arrivals(&self, staggered: u64) -> Vec<(u64, Packet)> {
        let blocks = self.rounds * u64::from(self.cores) * staggered;
        let (children, apart) = (self.children, self.apart as f64);
        Stream { blocks, children, staggered, apart, random: false, rest: 0.0 }.arrivals(1)
    }

    /// How long a burst of packets to home 0 lasts, including a packet's time after the last one, and how long no
    /// packet comes then.
    fn bursts(&self, shape: Shape, arrivals: &[(u64, Packet)]) -> (u64, u64) {
        let home: Vec<_> = arrivals.iter().filter(|(_, packet)| shape.home(packet.block) == 0).collect();
        let step = home.get(1).map_or(0, |second| second.0 - home[0].0);
        let end = home.windows(2).find(|pair| pair[1].0 - pair[0].0 > step);
        end.map_or((0, 0), |pair| (pair[0].0 + step - home[0].0, pair[1].0 - pair[0].0 - step))
    }
}
