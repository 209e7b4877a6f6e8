//! Programs of the Python package that this program starts, for pictures and for Dask.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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
    pub fn not_started(&self, error: &io::Error) -> String {
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
    let mut drawer = Drawer::start(program);
    drawer.draw(data);
    drawer.finish()
}

/// Draws files of figures one after the other, beside this program's work, in one process: most of a picture's time is
/// that of matplotlib's start. Dropping it waits until all are drawn.
pub struct Drawer {
    module: Module,
    child: Result<Child, String>,
}

impl Drawer {
    /// The process. Why it does not start, [`Drawer::finish`] says.
    pub fn start(program: &Program) -> Drawer {
        let module = Module::new(program, "tributary.plots", "plots");
        let mut command = module.command();
        // In a group of its own: Ctrl-C stops this program, and the pictures of what is finished are drawn all the same.
        command.arg("-").process_group(0).stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null());
        Drawer { child: command.spawn().map_err(|error| module.not_started(&error)), module }
    }

    /// Has a file drawn, in a while.
    pub fn draw(&mut self, data: &Path) {
        let Ok(Child { stdin: Some(stdin), .. }) = &mut self.child else { return };
        // The call fails only if the process has ended, and then its last words say why.
        let _ = writeln!(stdin, "{}", data.display());
    }

    /// Waits until all are drawn. The error is about the last one that was not.
    pub fn finish(mut self) -> Result<(), String> {
        self.wait()
    }

    fn wait(&mut self) -> Result<(), String> {
        let child = self.child.as_mut().map_err(|reason| reason.clone())?;
        drop(child.stdin.take());
        let mut said = String::new();
        // What it said until then is all there is.
        let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.module.failed(&said)),
        }
    }
}

impl Drop for Drawer {
    fn drop(&mut self) {
        let _ = self.wait();
    }
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
