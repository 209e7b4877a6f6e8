//! How to start this program again: the demo and the bench run a switch and workers as processes of their own.

use std::ffi::OsString;
use std::io;
use std::process::Command;

/// The words before the subcommand: the binary's path, or a Python interpreter with `-m tributary`.
#[derive(Clone, Debug)]
pub struct Program {
    launcher: Vec<OsString>,
    /// The subcommand and its arguments.
    arguments: Vec<OsString>,
}

impl Program {
    /// This process's own executable, or its name if /proc does not have the path; wrong inside an interpreter.
    pub fn this_binary() -> io::Result<Program> {
        let path = match (std::env::current_exe(), std::env::args_os().next()) {
            (Ok(path), _) => path.into_os_string(),
            (Err(_), Some(name)) => name,
            (Err(error), None) => return Err(error),
        };
        Ok(Program { launcher: vec![path], arguments: Vec::new() })
    }

    /// The words that the embedding interpreter gives; never empty.
    pub fn launched_by(launcher: Vec<OsString>) -> Program {
        assert!(!launcher.is_empty(), "a program has at least a path");
        Program { launcher, arguments: Vec::new() }
    }

    /// The same program, as it was called with these arguments.
    pub fn called_with(&self, arguments: &[OsString]) -> Program {
        Program { launcher: self.launcher.clone(), arguments: arguments.to_vec() }
    }

    /// Another process of this program, with the subcommand and the arguments of this one.
    pub fn again(&self) -> Command {
        let mut command = self.command();
        command.args(&self.arguments);
        command
    }

    /// The words before the subcommand, for another program's command line (`ip netns exec ...`).
    pub fn words(&self) -> &[OsString] {
        &self.launcher
    }

    /// The Python interpreter with which this program was started, if there is one.
    pub fn interpreter(&self) -> Option<&OsString> {
        (self.launcher.len() > 1).then(|| &self.launcher[0])
    }

    /// A process of this program; the caller adds the subcommand.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.launcher[0]);
        command.args(&self.launcher[1..]);
        command
    }
}
