//! `tributary status`: what a switch knows of its jobs.

use crate::address::parse_switch;
use crate::failure::Failure;

/// The flags of `tributary status`.
#[derive(clap::Args)]
pub struct Args {
    /// The switch; port 17777 where none is given
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Asks the switch and prints its answer.
pub fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::new("status is not built yet"))
}
