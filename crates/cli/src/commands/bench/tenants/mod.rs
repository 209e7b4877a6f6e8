//! `tributary bench --tenants`: two jobs on one switch, one of them with a rank behind a slow link, under each way to share
//! the switch's memory.
//!
//! `ways.rs` are those ways, `measure.rs` runs the jobs and looks at the switch, `report.rs` is what people and scripts see.

mod measure;
mod report;
mod ways;

use super::Args;
use super::plan::{self, Rate};
use crate::failure::Failure;
use crate::output;
use crate::program::Program;
use crate::stage::Interrupt;

/// What is measured.
pub struct Plan {
    /// Of every link but the slow one, in Gbit/s.
    pub rate_gbps: f64,
    /// Elements of float32 in each job's tensor.
    pub elements: usize,
    /// Collectives of job B.
    pub iters: u32,
    /// Times that all ways take their turn.
    pub repetitions: u32,
    /// Blocks that the switch has room for; 1.25 times what a path holds, if nobody says.
    pub aggregators: Option<u32>,
    /// Bytes of the longest IP packet.
    pub mtu: u16,
}

/// The link of job A's rank 0 has this part of the others' rate.
pub const SLOWER: f64 = 4.0;

impl Plan {
    fn new(args: &Args) -> Result<Plan, Failure> {
        let rate_gbps = match args.rate_gbps[..] {
            [] => 1.0,
            [Rate::Gbps(gbps)] => gbps,
            _ => return Err(Failure::usage("--tenants needs one rate that is a number (--rate-gbps 1)")),
        };
        let quarter = plan::parse_rate(&(rate_gbps / SLOWER).to_string());
        quarter.map_err(|why| Failure::usage(format!("a quarter of --rate-gbps {rate_gbps} is no rate: {why}")))?;
        let megabytes = args.size_mb.unwrap_or(if args.quick { 0.4 } else { 4.0 });
        Ok(Plan {
            rate_gbps,
            elements: args.elements.map_or((megabytes * 1e6 / 4.0).round() as usize, |elements| elements as usize),
            iters: args.iters.unwrap_or(if args.quick { 4 } else { 20 }),
            repetitions: args.repetitions.unwrap_or(if args.quick { 1 } else { 3 }),
            aggregators: args.aggregators,
            mtu: args.mtu,
        })
    }
}

/// Runs it and prints the table.
pub fn run(args: &Args, program: &Program, interrupt: &Interrupt) -> Result<(), Failure> {
    let report = measure::run(&Plan::new(args)?, program, interrupt)?;
    match args.json {
        true => output::json(&report)?,
        false => output::line(&report.render())?,
    }
    Ok(())
}
