//! Where the processes run: a star of network namespaces, or this machine's loopback.

use std::process::Command;

use tributary_testbed::{Star, TestbedError};

use crate::program::Program;

/// The switch's port inside a star.
const PORT: u16 = 17777;

/// Where the processes run.
pub enum Place {
    /// Namespaces whose links have a rate.
    Star(Star),
    /// One address, no links.
    Loopback,
}

impl Place {
    /// The star, if it is one, to change its faults.
    pub fn star_mut(&mut self) -> Option<&mut Star> {
        match self {
            Place::Star(star) => Some(star),
            Place::Loopback => None,
        }
    }

    /// The address on which the switch must listen.
    pub fn listen(&self) -> String {
        match self {
            Place::Star(star) => format!("{}:{PORT}", star.switch_addr()),
            // Any free port; the switch tells which it got.
            Place::Loopback => "127.0.0.1:0".to_string(),
        }
    }

    /// Does `work` where the switch runs and its address can be reached.
    pub fn at_switch<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        match self {
            Place::Star(star) => star.switch_box().inside(work),
            Place::Loopback => Ok(work()),
        }
    }

    /// This program in the switch's namespace; the caller adds the subcommand.
    pub fn switch_command(&self, program: &Program) -> Result<Command, TestbedError> {
        match self {
            Place::Star(star) => within(star.switch_box().command(&program.words()[0])?, program),
            Place::Loopback => Ok(program.command()),
        }
    }

    /// This program in a worker's namespace; the caller adds the subcommand.
    pub fn worker_command(&self, program: &Program, rank: usize) -> Result<Command, TestbedError> {
        match self {
            Place::Star(star) => within(star.host(rank).command(&program.words()[0])?, program),
            Place::Loopback => Ok(program.command()),
        }
    }
}

fn within(mut command: Command, program: &Program) -> Result<Command, TestbedError> {
    command.args(&program.words()[1..]);
    Ok(command)
}
