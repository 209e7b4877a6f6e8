//! A cluster of PsPIN: cores that run handlers at a time, on one memory, and wait for each other's locks by spinning.
//!
//! Cores go on in turns, instruction by instruction: always the one whose clock is behind. Calls are served first come, first
//! served, by whichever core is free. As in a [`Unit`](crate::Unit), commands are carried out at once, and no two cores meet in a
//! bank of L1.

use std::collections::BTreeMap;

use crate::fault::{Fault, OutOfBounds};
use crate::hart::{Core, Stop};
use crate::memory::{COMMAND_REGISTERS, Memory};
use crate::program::Program;
use crate::timing::{Counts, Timing};
use crate::unit::{CallError, Command, carry_out, loaded, map};

/// What each core's stack may take.
const STACK_BYTES: u32 = 0x1000;

/// Cores on one memory.
#[derive(Clone, Debug)]
pub struct Cluster {
    memory: Memory,
    symbols: BTreeMap<String, u32>,
    cores: Vec<Seat>,
}

/// A core, and what it runs.
#[derive(Clone, Debug)]
struct Seat {
    core: Core,
    /// Its clock: when it began to count, in cycles of the cluster.
    since: u64,
    /// Its command unit's.
    registers: [u32; COMMAND_REGISTERS],
    runs: Option<Running>,
}

#[derive(Clone, Debug)]
struct Running {
    call: usize,
    began: u64,
    before: Counts,
    commands: Vec<Command>,
}

/// A handler that is to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Not before this cycle.
    pub at: u64,
    /// A function of the program.
    pub function: &'a str,
}

/// A handler that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Which call it was.
    pub call: usize,
    /// On which core.
    pub core: usize,
    /// When it began ...
    pub began: u64,
    /// ... and ended, in cycles.
    pub ended: u64,
    /// What it has cost: waiting for locks is instructions like any others.
    pub counts: Counts,
    /// The commands that it gave.
    pub commands: Vec<Command>,
}

impl Seat {
    fn now(&self) -> u64 {
        self.since + self.core.counts().cycles
    }
}

impl Cluster {
    /// So many cores with a program in their memory.
    pub fn new(program: &Program, timing: &Timing, cores: usize) -> Result<Cluster, OutOfBounds> {
        let seat = || Seat { core: Core::new(timing.clone()), since: 0, registers: [0; COMMAND_REGISTERS], runs: None };
        let cores = (0..cores).map(|_| seat()).collect();
        Ok(Cluster { memory: loaded(program)?, symbols: program.symbols.clone(), cores })
    }

    /// The memory, to prepare it and to look at.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Serves calls, in the order of their times, until all have ended or the clock has passed `limit`. `bring` gives a call's
    /// arguments when it begins on a core: a packet has to be somewhere where no other core's is. Gives calls as they end.
    pub fn run(
        &mut self,
        calls: &[Call<'_>],
        limit: u64,
        mut bring: impl FnMut(&mut Memory, usize, usize) -> Result<Vec<u32>, OutOfBounds>,
    ) -> Result<Vec<Ran>, CallError> {
        let (mut ran, mut begun) = (Vec::with_capacity(calls.len()), 0);
        // Since when a core is free, where calls wait for one.
        let mut free_at = 0;
        loop {
            let behind = (0..self.cores.len()).filter(|&core| self.cores[core].runs.is_some());
            let behind = behind.min_by_key(|&core| (self.cores[core].now(), core));
            let free = self.cores.iter().position(|seat| seat.runs.is_none());
            if let (Some(free), Some(call)) = (free, calls.get(begun))
                && behind.is_none_or(|core| self.cores[core].now() >= call.at)
            {
                let arguments = bring(&mut self.memory, free, begun)?;
                self.begin(free, begun, call.function, call.at.max(free_at), &arguments)?;
                begun += 1;
                continue;
            }
            let Some(behind) = behind else { return Ok(ran) };
            if self.cores[behind].now() > limit {
                return Err(Fault::CycleLimit { limit }.into());
            }
            if let Some(ended) = self.step(behind)? {
                free_at = free_at.max(ended.ended);
                ran.push(ended);
            }
        }
    }

    fn begin(&mut self, core: usize, call: usize, function: &str, at: u64, arguments: &[u32]) -> Result<(), CallError> {
        let address = self.symbols.get(function).copied();
        let address = address.ok_or_else(|| CallError::NoSuchFunction(function.to_owned()))?;
        let seat = &mut self.cores[core];
        let before = seat.core.counts();
        seat.since = at - before.cycles;
        seat.core.call(address, map::STACK - core as u32 * STACK_BYTES, arguments);
        seat.runs = Some(Running { call, began: at, before, commands: Vec::new() });
        Ok(())
    }

    /// One instruction of a core. Gives its handler if that has ended.
    fn step(&mut self, at: usize) -> Result<Option<Ran>, CallError> {
        let seat = &mut self.cores[at];
        self.memory.exchange_commands(&mut seat.registers);
        let stop = seat.core.step(&mut self.memory)?;
        match stop {
            Some(Stop::Called | Stop::Break) => return Err(CallError::Trap(seat.core.pc())),
            Some(Stop::Command) => {
                if let (Some(registers), Some(runs)) = (self.memory.take_command(), &mut seat.runs) {
                    runs.commands.push(carry_out(&mut self.memory, registers)?);
                }
            }
            Some(Stop::Returned) | None => {}
        }
        self.memory.exchange_commands(&mut seat.registers);
        if !seat.core.has_returned() {
            return Ok(None);
        }
        let ended = seat.now();
        let ended = seat.runs.take().map(|Running { call, began, before, commands }| Ran {
            call,
            core: at,
            began,
            ended,
            counts: seat.core.counts() - before,
            commands,
        });
        Ok(ended)
    }
}
