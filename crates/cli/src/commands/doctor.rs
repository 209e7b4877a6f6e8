//! `tributary doctor`: what is wrong, and the command that mends it.

use crate::address::parse_switch;
use crate::failure::Failure;

/// The flags of `tributary doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// Check the way to this switch too
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs every check.
pub fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::new("doctor is not built yet"))
}
