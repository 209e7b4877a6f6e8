//! Reports of the processors of switches with cores.

use serde::Serialize;

use crate::cores::counters::Level;
use crate::cores::steps::Kind;
use crate::driver::{Simulation, SwitchCores};

/// One switch's processor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoresReport {
    /// The switch's number.
    pub switch: u32,
    /// Handlers that have ended.
    pub packets: u64,
    /// Packets for which the packet memory had no room.
    pub refused: u64,
    /// Packets that were marked because the packet memory was filling.
    pub marked: u64,
    /// The share of the cores' time in which they had a handler.
    pub busy: f64,
    /// Gigabits handled in a second, over the time in which there were packets.
    pub handled_gbps: f64,
    /// Packets that waited for a core, on average.
    pub queue_mean: f64,
    /// The most packets that waited for one subset.
    pub queue_peak: u64,
    /// Bytes of the packet memory, on average.
    pub input_mean_bytes: f64,
    /// The most bytes of the packet memory.
    pub input_peak_bytes: u64,
    /// Bytes of blocks, on average.
    pub working_mean_bytes: f64,
    /// The most bytes of blocks.
    pub working_peak_bytes: u64,
    /// Buffers that began when their cluster's memory was full.
    pub crowded: u64,
    /// Cycles of waiting for locks.
    pub lock_waiting_cycles: u64,
    /// Cycles of steps, by kind.
    pub cycles: Vec<KindCycles>,
    /// True if the cycles of some job's own operator are estimated.
    pub estimated: bool,
}

/// Cycles of one kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindCycles {
    /// The kind.
    pub kind: &'static str,
    /// Its cycles.
    pub cycles: u64,
}

impl CoresReport {
    /// Cycles of all handlers, including waiting.
    pub fn service_cycles(&self) -> u64 {
        self.lock_waiting_cycles + self.cycles.iter().map(|kind| kind.cycles).sum::<u64>()
    }
}

/// The reports of processors that handled packets.
pub fn reports(simulation: &Simulation) -> Vec<CoresReport> {
    let now = simulation.fabric.now.0;
    let used = simulation.cores().filter(|(_, cores)| cores.counters().finished + cores.counters().refused > 0);
    let mut own = simulation.traffic.jobs.all().iter().filter_map(|job| job.plan.own.as_ref()?.cycles);
    let estimated = own.any(|cycles| cycles.estimated);
    used.map(|(switch, cores)| CoresReport { estimated, ..report(switch, cores, now) }).collect()
}

fn report(switch: u32, cores: &SwitchCores, now: u64) -> CoresReport {
    let (counters, spec) = (cores.counters(), cores.spec());
    let cycles = |picoseconds: u64| picoseconds / spec.cycle;
    let mean = |level: &Level| level.mean(now);
    let kind = |kind: Kind| KindCycles { kind: kind.name(), cycles: cycles(counters.of(kind)) };
    CoresReport {
        switch,
        packets: counters.finished,
        refused: counters.refused,
        marked: counters.marked,
        busy: counters.service() as f64 / (now.max(1) as f64 * f64::from(spec.shape.all_cores())),
        handled_gbps: counters.handled_gbps(),
        queue_mean: mean(&counters.queued),
        queue_peak: cores.processor().longest_queue(),
        input_mean_bytes: mean(&counters.input_bytes),
        input_peak_bytes: counters.input_bytes.peak(),
        working_mean_bytes: mean(&counters.working_bytes),
        working_peak_bytes: counters.working_bytes.peak(),
        crowded: counters.crowded,
        lock_waiting_cycles: cycles(counters.lock_waiting),
        cycles: Kind::ALL.into_iter().map(kind).collect(),
        estimated: false,
    }
}
