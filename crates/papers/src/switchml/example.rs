//! SwitchML's appendix A, event by event (three workers, one slot and two losses), and §7: how many workers switches in levels
//! can serve.

use serde::Deserialize;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::switch::Verdict;

use super::bench::{Bench, Came};
use crate::{Context, Experiment, Findings, ReproduceError};

/// Elements of a block; the tensor has two blocks: those of `off` and of `off + k * s`.
const BLOCK: usize = 4;

/// There are no parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {}

/// The steps, and whether each is as the paper prints it; `None` for the losses, which are caused here.
#[derive(Default)]
struct Steps(Vec<(&'static str, String, Option<bool>)>);

impl Steps {
    fn note(&mut self, time: &'static str, what: impl Into<String>, as_printed: bool) {
        self.0.push((time, what.into(), Some(as_printed)));
    }

    fn lose(&mut self, time: &'static str, what: &str) {
        self.0.push((time, what.into(), None));
    }
}

impl Experiment for Example {
    /// Findings `steps` (steps that are as printed, without the two losses) and `right` (right blocks of results, over
    /// all workers).
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut bench = Bench::new(3, 1, BLOCK as u16, "fixed", TimerConfig::default())?;
        for worker in 0..3 {
            bench.submit(worker, input(worker), ReduceOp::Sum)?;
        }
        let mut steps = Steps::default();
        let (unicast, result) = first_block(&mut bench, &mut steps);
        second_block(&mut bench, &mut steps, &unicast, &result);
        let mut right = 0;
        for worker in 0..3 {
            let results = bench.results(worker)?;
            let words: Vec<i32> = results
                .iter()
                .flat_map(|bytes| bytes.chunks_exact(4).map(|word| i32::from_be_bytes(word.try_into().expect("four"))))
                .collect();
            right += words.chunks(BLOCK).zip(sums().chunks(BLOCK)).filter(|(ours, sums)| ours == sums).count();
        }
        let mut findings = Findings::default();
        findings.value("steps", steps.0.iter().filter(|(_, _, as_printed)| *as_printed == Some(true)).count() as f64);
        findings.value("right", right as f64);
        for (time, what, as_printed) in steps.0 {
            findings.note(format!("{time}: {what}{}", if as_printed == Some(false) { "; NOT as printed" } else { "" }));
        }
        Ok(findings)
    }
}

fn input(worker: usize) -> Vec<i32> {
    (0..2 * BLOCK as i32).map(|i| 100 * (worker as i32 + 1) + i).collect()
}

fn sums() -> Vec<i32> {
    (0..2 * BLOCK as i32).map(|i| 600 + 3 * i).collect()
}

fn is_added(came: &Came) -> bool {
    *came == Came::Kept(Verdict::Consume)
}

fn is_ignored(came: &Came) -> bool {
    *came == Came::Kept(Verdict::Drop(DropReason::Duplicate))
}

/// The only packet that leaves the switch, if it goes to these workers.
fn left(came: Came, receivers: &[usize]) -> Option<Vec<u8>> {
    match came {
        Came::Left(packets) => packets.into_iter().find(|(to, _)| to == receivers).map(|(_, bytes)| bytes),
        Came::Kept(_) => None,
    }
}

/// t0 to t8; returns the answer to w1 alone, and the result that goes to all.
fn first_block(bench: &mut Bench, steps: &mut Steps) -> (Vec<u8>, Vec<u8>) {
    let updates: Vec<Vec<u8>> = (0..3).map(|worker| bench.sends(worker).unwrap_or_default()).collect();
    for (time, worker) in [("t0", 0), ("t1", 1)] {
        let came = bench.reaches_switch(worker, updates[worker].clone());
        steps.note(time, format!("w{} sends its update for slot x; the switch adds it", worker + 1), is_added(&came));
    }
    steps.note("t2", "w3 sends its update for slot x", !updates[2].is_empty());
    steps.lose("t3", "w3's update is lost on the way up");
    for (time, worker) in [("t4", 0), ("t5", 1)] {
        bench.times_out(worker);
        let again = bench.sends(worker).unwrap_or_default();
        let is_same = again == updates[worker];
        let came = bench.reaches_switch(worker, again);
        let what = format!("w{}'s timer runs out; it sends the same update, which the switch ignores", worker + 1);
        steps.note(time, what, is_same && is_ignored(&came));
    }
    bench.times_out(2);
    let again = bench.sends(2).unwrap_or_default();
    let is_same = again == updates[2];
    let result = left(bench.reaches_switch(2, again), &[0, 1, 2]);
    let what =
        "w3's timer runs out; its update completes the slot, which becomes a shadow copy, and three results leave";
    steps.note("t6", what, is_same && result.is_some());
    steps.lose("t7", "w1's copy of the result is lost on the way down");
    bench.times_out(0);
    let third = bench.sends(0).unwrap_or_default();
    let is_same = third == updates[0];
    let unicast = left(bench.reaches_switch(0, third), &[0]);
    steps.note("t8", "w1 sends its update a third time; the switch answers w1 alone", is_same && unicast.is_some());
    (unicast.unwrap_or_default(), result.unwrap_or_default())
}

/// t9 to t15.
fn second_block(bench: &mut Bench, steps: &mut Steps, unicast: &[u8], result: &[u8]) {
    let mut next = Vec::new();
    for (time, worker) in [("t9", 1), ("t10", 2)] {
        bench.reaches_worker(worker, result);
        next.push((worker, bench.sends(worker)));
        let has_next = next.last().is_some_and(|(_, update)| update.is_some());
        steps.note(time, format!("w{} has the result, and may use slot x again for off + k s", worker + 1), has_next);
    }
    bench.reaches_worker(0, unicast);
    let of_w1 = bench.sends(0);
    steps.note("t11", "the answer reaches w1", of_w1.is_some());
    for (time, (worker, update)) in ["t12", "t13"].into_iter().zip(next) {
        let came = bench.reaches_switch(worker, update.unwrap_or_default());
        steps.note(
            time,
            format!("w{} sends its update for off + k s, which the switch adds", worker + 1),
            is_added(&came),
        );
    }
    steps.note("t14", "w1 uses slot x again for off + k s", of_w1.is_some());
    let second = left(bench.reaches_switch(0, of_w1.unwrap_or_default()), &[0, 1, 2]);
    let what = "w1's update completes the slot: every worker has the first result, and the copies change roles again";
    steps.note("t15", what, second.is_some());
    for worker in 0..3 {
        bench.reaches_worker(worker, second.as_deref().unwrap_or_default());
    }
}

/// The switches.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Levels {
    /// Ports of a switch.
    pub ports: u32,
    /// Pipelines of a switch.
    pub pipelines: u32,
    /// The most levels that are computed.
    pub levels: u32,
}

impl Experiment for Levels {
    /// Findings `levels-1`, `levels-2` ...
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.pipelines == 0 || self.ports < self.pipelines * 2 {
            return Err(ReproduceError::Bad("a pipeline needs at least two ports".into()));
        }
        let mut findings = Findings::default();
        let (p, d) = (self.ports_per_pipeline(), self.downstream());
        let u = self.upstream(d);
        for level in 1..=self.levels {
            findings.value(format!("levels-{level}"), self.workers(level) as f64);
        }
        findings.note(format!(
            "Each pipeline sums p = {p} ports. A switch below the root has d = {d} ports downwards and u = ceil(d/p) = {u} \
             upwards, one for each pipeline (d + u <= {}). The root must bring everything together in one pipeline, so \
             {p} partial sums reach it, u = {u} of them from each switch below.",
            self.ports
        ));
        Ok(findings)
    }
}

impl Levels {
    fn ports_per_pipeline(&self) -> u32 {
        self.ports / self.pipelines
    }

    fn upstream(&self, downstream: u32) -> u32 {
        downstream.div_ceil(self.ports_per_pipeline())
    }

    /// The most ports downwards that leave enough ports upwards.
    fn downstream(&self) -> u32 {
        (1..self.ports).rev().find(|&d| d + self.upstream(d) <= self.ports).unwrap_or(0)
    }

    /// How many workers a number of levels serve.
    fn workers(&self, levels: u32) -> u64 {
        let (p, d) = (u64::from(self.ports_per_pipeline()), u64::from(self.downstream()));
        let u = u64::from(self.upstream(self.downstream()));
        match levels {
            0 => 0,
            1 => p,
            _ => p / u * (d / u).saturating_pow(levels - 2) * d,
        }
    }
}
