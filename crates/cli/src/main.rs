//! The plain binary: [`tributary_cli::run`] on the process's arguments.

use tributary_cli::Program;

fn main() {
    let code = match Program::this_binary() {
        Ok(program) => tributary_cli::run(&program, std::env::args_os()),
        Err(error) => {
            eprintln!("tributary: error: this program cannot find its own file: {error}");
            1
        }
    };
    std::process::exit(code);
}
