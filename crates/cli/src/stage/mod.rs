//! A stage for the demo and the bench: a switch and workers as real processes of this program, in a star of network
//! namespaces or on loopback.
//!
//! Start with [`Stage`], a place with a running switch; [`Stage::allreduce`] runs one job on it.

pub mod cpu;
mod interrupt;
pub mod job;
mod place;
mod process;
mod random;

use std::time::Duration;

use serde_json::Value;
use tributary_net::client;
use tributary_net::status::SwitchStatus;

use crate::failure::Failure;
use crate::flags::resolve;
use crate::program::Program;

pub use interrupt::Interrupt;
pub use job::{JobRun, RunningJob, WorkerReport};
pub use place::Place;
pub use process::Process;
pub use random::Random;

/// How long a program may take to say that it is ready, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A place with a running switch.
pub struct Stage {
    program: Program,
    place: Place,
    switch: Process,
    /// The switch's address for workers.
    switch_addr: String,
    jobs: u32,
    interrupt: Interrupt,
}

impl Stage {
    /// Starts a switch with `shards` threads in `place` and waits until it serves.
    pub fn open(program: &Program, place: Place, shards: u16, interrupt: &Interrupt) -> Result<Stage, Failure> {
        Stage::open_with(program, place, &["--cores".to_owned(), shards.to_string()], interrupt)
    }

    /// The same with any flags of `tributary switch`.
    pub fn open_with(
        program: &Program,
        place: Place,
        flags: &[String],
        interrupt: &Interrupt,
    ) -> Result<Stage, Failure> {
        let mut command = place.switch_command(program)?;
        command.args(["switch", "--listen", &place.listen(), "--json"]).args(flags);
        let mut switch = Process::spawn("the switch", command, interrupt)?;
        let ready = switch.next_line(START_TIMEOUT)?;
        let switch_addr = serde_json::from_str::<Value>(&ready)
            .ok()
            .and_then(|ready| ready.get("listen")?.as_str().map(str::to_string))
            .ok_or_else(|| Failure::new(format!("the switch began with '{ready}', which names no address")))?;
        Ok(Stage { program: program.clone(), place, switch, switch_addr, jobs: 0, interrupt: interrupt.clone() })
    }

    /// The place where everything runs.
    pub fn place_mut(&mut self) -> &mut Place {
        &mut self.place
    }

    /// The switch's address for workers.
    pub fn switch_addr(&self) -> &str {
        &self.switch_addr
    }

    /// CPU seconds that the switch has used.
    pub fn switch_cpu_seconds(&self) -> f64 {
        cpu::seconds_of(self.switch.pid())
    }

    /// Runs one job to its end, with one worker for each input; returns the reports in the order of ranks.
    pub fn allreduce(&mut self, run: &JobRun) -> Result<Vec<WorkerReport>, Failure> {
        self.start(run)?.finish()
    }

    /// Starts one job beside those that already run.
    pub fn start(&mut self, run: &JobRun) -> Result<RunningJob, Failure> {
        self.jobs += 1;
        RunningJob::start(self, run)
    }

    /// Starts a parameter server on a host and waits until it is on offer.
    pub fn serve(&self, host: usize) -> Result<Process, Failure> {
        let mut command = self.place.worker_command(&self.program, host)?;
        command.args(["ps", "--switch", &self.switch_addr, "--json"]);
        let mut server = Process::spawn(format!("the server on host {host}"), command, &self.interrupt)?;
        server.next_line(START_TIMEOUT)?;
        Ok(server)
    }

    /// The switch's status.
    pub fn status(&self) -> Result<SwitchStatus, Failure> {
        let switch = resolve(&self.switch_addr)?;
        let status = self.place.at_switch(|| client::status(switch))?;
        status.map_err(|error| Failure::new(error.to_string()))
    }

    /// Ends the switch with SIGTERM, and starts another one with these flags in its place.
    pub fn reopen(self, flags: &[String]) -> Result<Stage, Failure> {
        let Stage { program, place, switch, interrupt, .. } = self;
        switch.terminate(START_TIMEOUT)?;
        Stage::open_with(&program, place, flags, &interrupt)
    }

    /// Ends the switch with SIGTERM, and fails if it did not end well.
    pub fn close(self) -> Result<(), Failure> {
        self.switch.terminate(START_TIMEOUT)
    }
}
