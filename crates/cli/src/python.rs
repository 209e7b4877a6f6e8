//! Programs of the Python package that this program starts, for pictures and for Dask.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::Program;

/// One of the package's modules, run as a program.
pub struct Module {
    interpreter: OsString,
    name: &'static str,
    /// The extra of the package that installs what the module needs.
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

    /// Why it failed, in a sentence, from its output.
    pub fn failed(&self, stderr: &str) -> String {
        let last = stderr.lines().last().unwrap_or("it said nothing").trim();
        let Some(start) = last.find("No module named") else { return last.to_string() };
        let (python, missing) = (self.interpreter.to_string_lossy(), last[start..].trim_end_matches(')'));
        format!("{python} says: {missing}; `pip install 'tributary-ina[{}]'` for it brings what is missing", self.extra)
    }
}

/// Makes the package draw a file of figures as a picture beside it, if matplotlib is installed; the error says what is
/// missing.
pub fn draw(data: &Path, program: &Program) -> Result<(), String> {
    draw_all(&[data.to_owned()], program)
}

/// The same of several files, in one process, since most of a picture's time is that of matplotlib's start.
pub fn draw_all(files: &[PathBuf], program: &Program) -> Result<(), String> {
    let module = Module::new(program, "tributary.plots", "plots");
    let run = module.command().args(files).output().map_err(|error| module.not_started(&error))?;
    if run.status.success() { Ok(()) } else { Err(module.failed(&String::from_utf8_lossy(&run.stderr))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_installs_it() {
        let program = Program::launched_by(vec!["/usr/bin/python3".into(), "-m".into(), "tributary".into()]);
        let module = Module::new(&program, "tributary.plots", "plots");
        assert_eq!(
            module.failed("Traceback\nModuleNotFoundError: No module named 'matplotlib'\n"),
            "/usr/bin/python3 says: No module named 'matplotlib'; `pip install 'tributary-ina[plots]'` for it brings what is missing"
        );
        assert_eq!(module.failed("ValueError: it has no figures\n"), "ValueError: it has no figures");
    }
}
