//! `tributary completions` and `tributary man`: completions of shells and manual pages, from the same definitions as `--help`.

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use crate::failure::Failure;
use crate::output;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tributary completions bash > ~/.local/share/bash-completion/completions/tributary
  tributary completions zsh > \"${fpath[1]}/_tributary\"
  tributary completions fish > ~/.config/fish/completions/tributary.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  tributary man ~/.local/share/man/man1    then: man tributary, man tributary-switch";

/// The flags of `tributary completions`.
#[derive(clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// The flags of `tributary man`.
#[derive(clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManArgs {
    /// Where the pages go; made if need be
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints a shell's script.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    // The generator panics if it cannot write, and a reader may go away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tributary", &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

/// Writes `tributary.1` and a page for each command below it.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    let directory = args.directory.display();
    std::fs::create_dir_all(&args.directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.directory))
        .map_err(|error| Failure::new(format!("cannot write manual pages into {directory}: {error}")))?;
    output::line(&format!("wrote the manual pages into {directory}"))?;
    Ok(())
}
