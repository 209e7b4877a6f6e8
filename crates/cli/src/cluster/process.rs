//! A child process whose output this program reads, and which never outlives this program; and Ctrl-C and SIGTERM as a
//! flag that waiting code checks, so that everything that was started is taken down in order.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// How often a wait checks whether a child has ended.
const POLL: Duration = Duration::from_millis(2);
/// How often a wait checks for signals while a child prints nothing.
const LISTEN: Duration = Duration::from_millis(100);

/// A running child; dropping it kills it.
pub struct Process {
    /// Its name for people: "rank 3", "the switch".
    name: String,
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    interrupt: Interrupt,
}

impl Process {
    /// Starts a command whose output this program reads.
    pub fn spawn(name: impl Into<String>, mut command: Command, interrupt: &Interrupt) -> Result<Process, Failure> {
        let name = name.into();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| Failure::new(format!("{name} could not be started: {error}")))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, lines) = channel();
        if let Some(stdout) = stdout {
            std::thread::spawn(move || {
                // Ends with the child's output, or when the receiver is gone.
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let errors = stderr.map(|mut stderr| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                // Output before an error is still useful.
                let _ = stderr.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).trim().to_string()
            })
        });
        Ok(Process { name, child, lines, errors, interrupt: interrupt.clone() })
    }

    /// The child's pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its input, if the command kept it open; only the first call returns it.
    pub fn take_input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// The next line of its output.
    pub fn next_line(&mut self, timeout: Duration) -> Result<String, Failure> {
        let deadline = Instant::now() + timeout;
        loop {
            self.interrupt.check()?;
            match self.lines.recv_timeout(LISTEN) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.wait_until(deadline)?;
                    return Err(self.failure(status));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err(Failure::new(format!("{} has said nothing for {} s", self.name, timeout.as_secs())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Kills it; returns its output.
    pub fn kill(mut self) -> Vec<String> {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.lines.iter().collect()
    }

    /// Waits for its end; returns its lines if it succeeded, else its error.
    pub fn finish(mut self, deadline: Instant) -> Result<Vec<String>, Failure> {
        let status = self.wait_until(deadline)?;
        if !status.success() {
            return Err(self.failure(status));
        }
        // The pipe closes with the child, so that this ends.
        Ok(self.lines.iter().collect())
    }

    /// Asks it to end (SIGTERM) and waits for that.
    pub fn terminate(mut self, timeout: Duration) -> Result<(), Failure> {
        // SAFETY: kill takes two numbers. The child has not been waited for, so the pid is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let status = self.wait_until(Instant::now() + timeout)?;
        if status.success() { Ok(()) } else { Err(self.failure(status)) }
    }

    /// Like [`Process::terminate`], but also after a signal asked the program to stop, since then everything must be
    /// taken down.
    pub fn terminate_regardless(mut self, timeout: Duration) -> Result<(), Failure> {
        self.interrupt = Interrupt::default();
        self.terminate(timeout)
    }

    /// True if it has ended, well or not.
    pub fn has_ended(&mut self) -> Result<bool, Failure> {
        self.interrupt.check()?;
        Ok(self.child.try_wait()?.is_some())
    }

    /// An error if it has ended.
    pub fn check_alive(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            Some(status) => Err(self.failure(status)),
            None => Ok(()),
        }
    }

    fn wait_until(&mut self, deadline: Instant) -> Result<ExitStatus, Failure> {
        loop {
            self.interrupt.check()?;
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(Failure::new(format!("{} did not end in time", self.name)));
            }
            std::thread::sleep(POLL);
        }
    }

    fn failure(&mut self, status: ExitStatus) -> Failure {
        let errors = self.errors.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let error = errors.lines().last().unwrap_or("").trim_start_matches("tributary: error: ");
        match error {
            "" => Failure::new(format!("{} failed ({status})", self.name)),
            error => Failure::new(format!("{}: {error}", self.name)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True once a signal asked the program to stop.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Makes the two signals set this flag. A second signal ends the process as usual.
    pub fn on_signals() -> io::Result<Interrupt> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, flag.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Interrupt(flag))
    }

    /// The flag itself, for loops that check it on their own.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// True once a signal asked the program to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a signal asked the program to stop.
    pub fn check(&self) -> Result<(), Failure> {
        if self.is_set() { Err(Failure::new("interrupted; everything that was started is taken down")) } else { Ok(()) }
    }
}
