//! A cluster on this machine for the demo and the bench: a switch and workers as processes of this program, in a star of
//! network namespaces or on loopback.
//!
//! Start with [`Cluster`], hosts with a running switch; [`Cluster::allreduce`] runs one job on it.

pub mod cpu;
pub mod job;
mod process;
mod random;

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tributary_net::client;
use tributary_net::status::SwitchStatus;
use tributary_testbed::{Star, TestbedError};

use crate::failure::Failure;
use crate::flags::resolve;
use crate::program::Program;

pub use job::{JobRun, RunningJob, WorkerReport};
pub use process::{Interrupt, Process};
pub use random::Random;

/// How long a program may take to say that it is ready, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Hosts with a running switch.
pub struct Cluster {
    program: Program,
    hosts: Hosts,
    switch: Process,
    /// The switch's address for workers.
    switch_addr: String,
    jobs: u32,
    interrupt: Interrupt,
}

impl Cluster {
    /// Starts a switch with `shards` threads on the hosts and waits until it serves.
    pub fn open(program: &Program, hosts: Hosts, shards: u16, interrupt: &Interrupt) -> Result<Cluster, Failure> {
        Cluster::open_with(program, hosts, &["--cores".to_owned(), shards.to_string()], interrupt)
    }

    /// The same with any flags of `tributary switch`.
    pub fn open_with(
        program: &Program,
        hosts: Hosts,
        flags: &[String],
        interrupt: &Interrupt,
    ) -> Result<Cluster, Failure> {
        let mut command = hosts.switch_command(program)?;
        command.args(["switch", "--listen", &hosts.listen(), "--json"]).args(flags);
        let mut switch = Process::spawn("the switch", command, interrupt)?;
        let ready = switch.next_line(START_TIMEOUT)?;
        let switch_addr = serde_json::from_str::<Value>(&ready)
            .ok()
            .and_then(|ready| ready.get("listen")?.as_str().map(str::to_string))
            .ok_or_else(|| Failure::new(format!("the switch began with '{ready}', which names no address")))?;
        Ok(Cluster { program: program.clone(), hosts, switch, switch_addr, jobs: 0, interrupt: interrupt.clone() })
    }

    /// The hosts where everything runs.
    pub fn hosts_mut(&mut self) -> &mut Hosts {
        &mut self.hosts
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
        let mut command = self.hosts.worker_command(&self.program, host)?;
        command.args(["ps", "--switch", &self.switch_addr, "--json"]);
        let mut server = Process::spawn(format!("the server on host {host}"), command, &self.interrupt)?;
        server.next_line(START_TIMEOUT)?;
        Ok(server)
    }

    /// The switch's status.
    pub fn status(&self) -> Result<SwitchStatus, Failure> {
        let switch = resolve(&self.switch_addr)?;
        let status = self.hosts.at_switch(|| client::status(switch))?;
        status.map_err(|error| Failure::new(error.to_string()))
    }

    /// Ends the switch with SIGTERM, and starts another one with these flags in its place.
    pub fn reopen(self, flags: &[String]) -> Result<Cluster, Failure> {
        let Cluster { program, hosts, switch, interrupt, .. } = self;
        switch.terminate(START_TIMEOUT)?;
        Cluster::open_with(&program, hosts, flags, &interrupt)
    }

    /// Ends the switch with SIGTERM, and fails if it did not end well.
    pub fn close(self) -> Result<(), Failure> {
        self.switch.terminate(START_TIMEOUT)
    }
}

/// The switch's port inside a star.
const PORT: u16 = 17777;

/// Where the processes run.
pub enum Hosts {
    /// Namespaces whose links have a rate.
    Star(Star),
    /// One address, no links.
    Loopback,
}

impl Hosts {
    /// The star, if it is one, to change its faults.
    pub fn star_mut(&mut self) -> Option<&mut Star> {
        match self {
            Hosts::Star(star) => Some(star),
            Hosts::Loopback => None,
        }
    }

    /// The address on which the switch must listen.
    pub fn listen(&self) -> String {
        match self {
            Hosts::Star(star) => format!("{}:{PORT}", star.switch_addr()),
            // Any free port; the switch prints which it got.
            Hosts::Loopback => "127.0.0.1:0".to_string(),
        }
    }

    /// Does `work` where the switch runs and its address can be reached.
    pub fn at_switch<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        match self {
            Hosts::Star(star) => star.switch_box().inside(work),
            Hosts::Loopback => Ok(work()),
        }
    }

    /// This program in the switch's namespace; the caller adds the subcommand.
    pub fn switch_command(&self, program: &Program) -> Result<Command, TestbedError> {
        match self {
            Hosts::Star(star) => within(star.switch_box().command(&program.words()[0])?, program),
            Hosts::Loopback => Ok(program.command()),
        }
    }

    /// This program in a worker's namespace; the caller adds the subcommand.
    pub fn worker_command(&self, program: &Program, rank: usize) -> Result<Command, TestbedError> {
        match self {
            Hosts::Star(star) => within(star.host(rank).command(&program.words()[0])?, program),
            Hosts::Loopback => Ok(program.command()),
        }
    }
}

fn within(mut command: Command, program: &Program) -> Result<Command, TestbedError> {
    command.args(&program.words()[1..]);
    Ok(command)
}
