//! `tributary lab bench --tenants`: two jobs on one switch, one of them with a rank behind a slow link, under each way to share
//! the switch's memory.
//!
//! `ways.rs` has those ways, `measure.rs` runs the jobs and observes the switch, and `report.rs` is the output for
//! people and scripts.

mod measure;
mod report;
mod ways;

use tributary_control::quantity::Bytes;

use super::Args;
use super::plan::{self, Rate};
use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::output;
use crate::program::Program;

/// The plan of the bench.
pub struct Plan {
    /// The rate of every link except the slow one, in Gbit/s.
    pub rate_gbps: f64,
    /// Elements of float32 in each job's tensor.
    pub elements: usize,
    /// Collectives of job B.
    pub iters: u32,
    /// How often each way takes its turn.
    pub repetitions: u32,
    /// Blocks that the switch has room for; `None` means 1.25 times as many as a path holds.
    pub aggregators: Option<u32>,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
}

/// By how many times the link of job A's rank 0 is slower than the others.
pub const SLOWER: f64 = 4.0;

impl Plan {
    fn new(args: &Args) -> Result<Plan, Failure> {
        let rate_gbps = match args.rate[..] {
            [] => 1.0,
            [Rate::Gbps(gbps)] => gbps,
            _ => return Err(Failure::usage("--tenants needs one rate (--rate 1Gbit/s)")),
        };
        plan::rate_of(rate_gbps / SLOWER).map_err(|why| Failure::usage(format!("a quarter of --rate: {why}")))?;
        let size = args.size.unwrap_or(Bytes(if args.quick { 400_000 } else { 4_000_000 }));
        Ok(Plan {
            rate_gbps,
            elements: args.elements.map_or(plan::elements_of(size), |elements| elements as usize),
            iters: args.iters.unwrap_or(if args.quick { 4 } else { 20 }),
            repetitions: args.repetitions.unwrap_or(if args.quick { 1 } else { 3 }),
            aggregators: args.aggregators,
            mtu: args.mtu,
        })
    }
}

/// Runs the bench and prints the table.
pub fn run(args: &Args, program: &Program, interrupt: &Interrupt) -> Result<(), Failure> {
    let report = measure::run(&Plan::new(args)?, program, interrupt)?;
    match args.json {
        true => output::json(&report)?,
        false => output::line(&report.render())?,
    }
    Ok(())
}
