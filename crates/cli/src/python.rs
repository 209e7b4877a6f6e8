//! Programs of the Python package that this one starts for what it cannot do itself: pictures, and Dask.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::Program;

/// One of the package's modules, as a program of its own.
pub struct Module {
    interpreter: OsString,
    name: &'static str,
    /// The part of the package that brings what the module needs.
    extra: &'static str,
}

impl Module {
    /// The module, for the interpreter that runs this program, or else the first `python3`.
    pub fn new(program: &Program, name: &'static str, extra: &'static str) -> Module {
        Module { interpreter: program.interpreter().cloned().unwrap_or_else(|| "python3".into()), name, extra }
    }

    /// Its command, to which arguments can be added.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.interpreter);
        command.args(["-m", self.name]).stdin(Stdio::null());
        command
    }

    /// Why it does not start, in a sentence.
    pub fn not_started(&self, error: &std::io::Error) -> String {
        format!("{} does not start ({error})", self.interpreter.to_string_lossy())
    }

    /// Why it failed, in a sentence, from what it said.
    pub fn failed(&self, stderr: &str) -> String {
        let last = stderr.lines().last().unwrap_or("it said nothing").trim();
        if last.contains("No module named") {
            let (python, extra) = (self.interpreter.to_string_lossy(), self.extra);
            format!("`pip install 'tributary[{extra}]'` for {python} brings what is missing ({last})")
        } else {
            last.to_string()
        }
    }
}

/// Lets the package draw a file of figures as a picture beside it, where it and matplotlib are; says what is missing.
pub fn draw(data: &Path, program: &Program) -> Result<(), String> {
    let module = Module::new(program, "tributary.plots", "plots");
    let run = module.command().arg(data).output().map_err(|error| module.not_started(&error))?;
    if run.status.success() { Ok(()) } else { Err(module.failed(&String::from_utf8_lossy(&run.stderr))) }
}
