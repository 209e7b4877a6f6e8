//! One contender's figures in one row of a bench: the medians of its runs.

use serde::Serialize;

use super::contender::{Contender, Density};

/// One run of one contender: medians over its collectives, sums over its processes.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Completion time at the slowest worker.
    pub seconds: f64,
    /// Completion time of the small tensor.
    pub small_seconds: f64,
    /// CPU time of all processes, the switch included.
    pub cpu_seconds: f64,
    /// The whole machine's time in soft interrupts, a part of which is in `cpu_seconds` too.
    pub softirq_seconds: f64,
    /// Packets or TCP segments sent again.
    pub retransmissions: u64,
    /// Packets that workers sent; unknown for TCP.
    pub packets_sent: Option<u64>,
}

/// The medians of a contender's runs.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The contender.
    #[serde(skip)]
    pub who: Contender,
    /// The name in the table.
    pub name: String,
    /// The protocol, or "gloo".
    pub contender: &'static str,
    /// The elements' type.
    pub dtype: &'static str,
    /// In which numbers floats are summed, "float", "fixed", "int8" or "thc4".
    pub numbers: &'static str,
    /// The design in which the switch sums; `None` if the protocol chooses.
    pub design: Option<&'static str>,
    /// Threads of each worker.
    pub cores: u16,
    /// The share of the elements that ranks bring; `None` for dense tensors.
    pub density: Option<f64>,
    /// Median completion time of the tensor.
    pub seconds: f64,
    /// Bits of the tensor divided by that time, in 10^9.
    pub goodput_gbps: f64,
    /// Elements of the tensor divided by that time.
    pub ate_per_s: f64,
    /// Elements a second divided by Gloo's with float32; for sparse tensors, by Gloo's with tensors of the same
    /// density.
    pub times_gloo: Option<f64>,
    /// Elements a second divided by those of the same contender with float32.
    pub times_f32: Option<f64>,
    /// Elements a second divided by those of the same contender in fixed point.
    pub times_fixed: Option<f64>,
    /// Elements a second of sparse tensors divided by those of the same contender with dense ones.
    pub times_dense: Option<f64>,
    /// Completion time divided by the loss-free one on the same star.
    pub times_loss_free: Option<f64>,
    /// Completion time in the plan of where to sum; `None` for contenders without one, or links without a rate.
    pub planned_seconds: Option<f64>,
    /// Completion time divided by the planned one.
    pub times_plan: Option<f64>,
    /// Median completion time of 256 elements, 1 KiB of float32.
    pub small_us: f64,
    /// CPU time of all processes for 10^9 bytes of tensor.
    pub cpu_s_per_gb: f64,
    /// The machine's time in soft interrupts for 10^9 bytes of tensor.
    pub softirq_s_per_gb: f64,
    /// Packets or TCP segments sent again in one run.
    pub retransmissions: u64,
    /// Packets that workers sent in one run.
    pub packets_sent: Option<u64>,
}

impl Line {
    /// The medians of a contender's runs, `None` if there are none. The report fills in what depends on other lines.
    pub fn of(who: Contender, runs: &[&Sample], elements: usize, iters: u32) -> Option<Line> {
        let median = |of: &dyn Fn(&Sample) -> f64| median(runs.iter().map(|run| of(run)).collect());
        let seconds = median(&|run| run.seconds)?;
        let bytes = elements as f64 * who.dtype().size() as f64;
        let gigabytes_of_run = bytes * f64::from(iters) / 1e9;
        Some(Line {
            who,
            name: who.name(),
            contender: who.protocol(),
            dtype: who.dtype().name(),
            numbers: who.numbers(),
            design: who.design(),
            cores: who.cores(),
            density: who.density().map(Density::share),
            seconds,
            goodput_gbps: bytes * 8.0 / seconds / 1e9,
            ate_per_s: elements as f64 / seconds,
            times_gloo: None,
            times_f32: None,
            times_fixed: None,
            times_dense: None,
            times_loss_free: None,
            planned_seconds: None,
            times_plan: None,
            small_us: median(&|run| run.small_seconds)? * 1e6,
            cpu_s_per_gb: median(&|run| run.cpu_seconds)? / gigabytes_of_run,
            softirq_s_per_gb: median(&|run| run.softirq_seconds)? / gigabytes_of_run,
            retransmissions: median(&|run| run.retransmissions as f64)? as u64,
            packets_sent: runs.first()?.packets_sent,
        })
    }
}

/// The middle value, or the mean of the two middle values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}
