//! The plain binary: [`tributary_cli::run`] on the process's arguments.

fn main() {
    std::process::exit(tributary_cli::run(std::env::args_os()));
}
