//! A cluster of PsPIN: several cores that run handlers on one memory, and spin while they wait for each other's locks.
//!
//! Cores take turns, instruction by instruction: the one whose clock is furthest behind is next. Calls are served in
//! order by whichever core is free. As in a [`Unit`](crate::Unit), commands are carried out at once, and no two cores
//! meet in a bank of L1.

use std::collections::BTreeMap;

use crate::fault::{Fault, OutOfBounds};
use crate::hart::{Core, Stop};
use crate::memory::{COMMAND_REGISTERS, Memory};
use crate::program::Program;
use crate::timing::{Counts, Timing};
use crate::unit::{CallError, Command, carry_out, loaded, map};

/// The most bytes of each core's stack.
const STACK_BYTES: u32 = 0x1000;

/// Cores on one memory.
#[derive(Clone, Debug)]
pub struct Cluster {
    memory: Memory,
    symbols: BTreeMap<String, u32>,
    cores: Vec<CoreSlot>,
}

/// A core, and the call that it runs.
#[derive(Clone, Debug)]
struct CoreSlot {
    core: Core,
    /// When the core's clock began, in cycles of the cluster.
    since: u64,
    /// The registers of the core's command unit.
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

/// A handler to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The first cycle at which it may begin.
    pub at: u64,
    /// The name of a function of the program.
    pub function: &'a str,
}

/// A handler that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The number of the call.
    pub call: usize,
    /// The core that ran it.
    pub core: usize,
    /// When it began, in cycles.
    pub began: u64,
    /// When it ended, in cycles.
    pub ended: u64,
    /// What it cost: waiting for locks costs instructions like any other work.
    pub counts: Counts,
    /// The commands that it gave.
    pub commands: Vec<Command>,
}

impl CoreSlot {
    fn now(&self) -> u64 {
        self.since + self.core.counts().cycles
    }
}

impl Cluster {
    /// A cluster of `cores` cores, with a program in their memory.
    pub fn new(program: &Program, timing: &Timing, cores: usize) -> Result<Cluster, OutOfBounds> {
        let idle =
            || CoreSlot { core: Core::new(timing.clone()), since: 0, registers: [0; COMMAND_REGISTERS], runs: None };
        let cores = (0..cores).map(|_| idle()).collect();
        Ok(Cluster { memory: loaded(program)?, symbols: program.symbols.clone(), cores })
    }

    /// The memory, to prepare and inspect.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Serves calls, in the order of their times, until all have ended or the clock has passed `limit`. `bring` returns
    /// a call's arguments when it begins on a core: its packet must lie where no other core's packet lies. Returns the
    /// calls in the order in which they ended.
    pub fn run(
        &mut self,
        calls: &[Call<'_>],
        limit: u64,
        mut bring: impl FnMut(&mut Memory, usize, usize) -> Result<Vec<u32>, OutOfBounds>,
    ) -> Result<Vec<Ran>, CallError> {
        let (mut ran, mut begun) = (Vec::with_capacity(calls.len()), 0);
        // Since when a core is free, if calls wait for one.
        let mut free_at = 0;
        loop {
            let behind = (0..self.cores.len()).filter(|&core| self.cores[core].runs.is_some());
            let behind = behind.min_by_key(|&core| (self.cores[core].now(), core));
            let free = self.cores.iter().position(|slot| slot.runs.is_none());
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
        let slot = &mut self.cores[core];
        let before = slot.core.counts();
        slot.since = at - before.cycles;
        slot.core.call(address, map::STACK - core as u32 * STACK_BYTES, arguments);
        slot.runs = Some(Running { call, began: at, before, commands: Vec::new() });
        Ok(())
    }

    /// Runs one instruction of a core; returns the core's call if it has ended.
    fn step(&mut self, at: usize) -> Result<Option<Ran>, CallError> {
        let slot = &mut self.cores[at];
        self.memory.exchange_commands(&mut slot.registers);
        let stop = slot.core.step(&mut self.memory)?;
        match stop {
            Some(Stop::Called | Stop::Break) => return Err(CallError::Trap(slot.core.pc())),
            Some(Stop::Command) => {
                if let (Some(registers), Some(runs)) = (self.memory.take_command(), &mut slot.runs) {
                    runs.commands.push(carry_out(&mut self.memory, registers)?);
                }
            }
            Some(Stop::Returned) | None => {}
        }
        self.memory.exchange_commands(&mut slot.registers);
        if !slot.core.has_returned() {
            return Ok(None);
        }
        let ended = slot.now();
        let ended = slot.runs.take().map(|Running { call, began, before, commands }| Ran {
            call,
            core: at,
            began,
            ended,
            counts: slot.core.counts() - before,
            commands,
        });
        Ok(ended)
    }
}
