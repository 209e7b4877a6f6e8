//! Figures 6, 8 and 9: what four cores do with the packets of one block, step by step.

use serde::Deserialize;
use tributary_sim::cores::Stretch;
use tributary_sim::cores::model::{Costs, Design, Handling};
use tributary_sim::cores::steps::Kind;

use super::bench::{Bench, Packet, shape};
use crate::{Context, Experiment, Findings, ReproduceError};

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
