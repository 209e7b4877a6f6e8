//! `tributary demo`.

use crate::failure::Failure;
use crate::program::Program;

/// The flags of `tributary demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Runs the demo.
pub fn run(_args: Args, _program: &Program) -> Result<(), Failure> {
    Err(Failure::new("demo is not built yet"))
}
