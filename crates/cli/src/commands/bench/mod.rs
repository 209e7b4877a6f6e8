//! `tributary bench`.

use crate::failure::Failure;
use crate::program::Program;

/// The flags of `tributary bench`.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Runs the bench.
pub fn run(_args: Args, _program: &Program) -> Result<(), Failure> {
    Err(Failure::new("bench is not built yet"))
}
