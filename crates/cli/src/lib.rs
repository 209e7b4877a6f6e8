//! The program `tributary` as a library: the plain binary and the Python package's console script run the same code.
//!
//! Start with [`run`], then `commands/mod.rs`, which declares every subcommand; each has a file or folder of its own
//! with its flags (`Args`) and its `run`. Output for people and scripts goes through `output.rs`, failures through
//! `failure.rs`.

mod cluster;
mod commands;
mod failure;
mod flags;
mod log;
mod npy;
mod output;
mod program;
mod python;
mod sink;

use std::ffi::OsString;

use clap::Parser;
use clap::error::ErrorKind;

use crate::commands::Cli;
use crate::failure::Failure;
pub use crate::flags::{parse_memory, parse_switch};
pub use crate::program::Program;

/// Runs the program with these arguments, its name first, and returns the exit code: 0 when all went well,
/// 1 when the command failed, 2 when it was called wrongly.
pub fn run(program: &Program, args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let program = program.called_with(args.get(1..).unwrap_or_default());
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error),
    };
    let json = cli.command.json();
    let log = match cli.command.log().and_then(|log| log.start()) {
        Ok(log) => log,
        Err(failure) => return failure.report(json),
    };
    let outcome = cli.command.run(&program);
    // The complaint must be the last line, so the log ends first.
    drop(log);
    match outcome {
        Ok(()) => 0,
        Err(failure) => failure.report(json),
    }
}

/// Help and version are not errors; everything else is reported like all other errors.
fn not_parsed(error: &clap::Error) -> i32 {
    let code = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => 2,
        _ => return Failure::Usage(sentence(error)).report(false),
    };
    // A reader that went away (`tributary --help | head -1`) is not an error.
    let _ = error.print();
    code
}

/// Clap's message without its "error:".
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_string()
}
