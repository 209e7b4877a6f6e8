//! A processing unit of PsPIN: a core with its memories and a command unit, which runs handlers.
//!
//! [`Unit::call`] does what the scheduler of a cluster does with a packet: it calls a handler, which ends by returning.
//! Commands are carried out at once, and cost the core only what giving them costs. A simulator of the network must add
//! how long a DMA takes, and when a packet that was sent is on the wire.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::fault::{Fault, OutOfBounds};
use crate::hart::{Core, Stop};
use crate::memory::{COMMAND_REGISTERS, Memory};
use crate::program::{Program, Segment};
use crate::timing::{Counts, Timing};

/// The map of memory. `dataplanes/pspin/runtime.h` and its linker script have the same.
pub mod map {
    /// The single-cycle memory of a cluster, 1 MiB: packets and the handlers' state.
    pub const L1: u32 = 0x1000_0000;
    /// Its size.
    pub const L1_BYTES: u32 = 1 << 20;
    /// L1 again, where loading a word tests and sets it.
    pub const LOCKS: u32 = L1 + L1_BYTES;
    /// Registers of the command unit: pending, source, destination, bytes, kind.
    pub const COMMANDS: u32 = 0x1b00_0000;
    /// The program memory in L2, 32 KiB.
    pub const PROGRAM: u32 = 0x1d00_0000;
    /// Its size.
    pub const PROGRAM_BYTES: u32 = 32 << 10;
    /// The stack grows downwards from here.
    pub const STACK: u32 = L1 + L1_BYTES;
}

/// Why a handler did not end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// The program has no such function.
    #[error("the program has no function {0}")]
    NoSuchFunction(String),
    /// The core cannot go on.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A command names an address outside of memory.
    #[error("a command was given for memory that is not there: {0}")]
    Command(#[from] OutOfBounds),
    /// A command of no known kind.
    #[error("{0} is not a kind of command")]
    CommandKind(u32),
    /// The handler called an environment that does not exist.
    #[error("the handler stopped by itself at {0:#010x}")]
    Trap(u32),
}

/// The command unit's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
    /// Send a packet; `destination` names its receiver, in the program's own way.
    Send,
    /// Copy from `source` to `destination`.
    Copy,
}

/// A command, and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The task.
    pub kind: CommandKind,
    /// The address that it reads.
    pub source: u32,
    /// The address that it writes, or a receiver.
    pub destination: u32,
    /// The bytes at the source when the command was given.
    pub data: Vec<u8>,
}

/// A core that runs handlers.
#[derive(Clone, Debug)]
pub struct Unit {
    core: Core,
    memory: Memory,
    symbols: BTreeMap<String, u32>,
}

impl Unit {
    /// A unit with a program in its memory.
    pub fn new(program: &Program, timing: Timing) -> Result<Unit, OutOfBounds> {
        Ok(Unit { core: Core::new(timing), memory: loaded(program)?, symbols: program.symbols.clone() })
    }

    /// Calls a function and runs it to its end, for at most `cycles` cycles. Returns its costs and its commands.
    pub fn call(
        &mut self,
        function: &str,
        arguments: &[u32],
        cycles: u64,
    ) -> Result<(Counts, Vec<Command>), CallError> {
        let address = self.symbols.get(function);
        let address = *address.ok_or_else(|| CallError::NoSuchFunction(function.to_owned()))?;
        let before = self.core.counts();
        self.core.call(address, map::STACK, arguments);
        let mut commands = Vec::new();
        loop {
            let spent = (self.core.counts() - before).cycles;
            match self.core.run(&mut self.memory, cycles.saturating_sub(spent))? {
                Stop::Returned => return Ok((self.core.counts() - before, commands)),
                Stop::Called | Stop::Break => return Err(CallError::Trap(self.core.pc())),
                Stop::Command => {
                    if let Some(registers) = self.memory.take_command() {
                        commands.push(carry_out(&mut self.memory, registers)?);
                    }
                }
            }
        }
    }

    /// The memory, to bring packets into and to inspect.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }
}

/// The memories of a cluster, with a program in them.
pub(crate) fn loaded(program: &Program) -> Result<Memory, OutOfBounds> {
    let mut memory = Memory::new()
        .with_region(map::L1, map::L1_BYTES)
        .with_region(map::PROGRAM, map::PROGRAM_BYTES)
        .with_locks(map::LOCKS, map::L1_BYTES, map::L1)
        .with_commands(map::COMMANDS);
    for Segment { address, bytes, memory_bytes } in &program.segments {
        memory.bytes(*address, *memory_bytes)?;
        memory.write(*address, bytes)?;
    }
    Ok(memory)
}

/// Carries out the command in the command unit's registers.
pub(crate) fn carry_out(memory: &mut Memory, registers: [u32; COMMAND_REGISTERS]) -> Result<Command, CallError> {
    let [_, source, destination, bytes, kind] = registers;
    let kind = match kind {
        1 => CommandKind::Send,
        2 => CommandKind::Copy,
        other => return Err(CallError::CommandKind(other)),
    };
    let data = memory.bytes(source, bytes)?.to_vec();
    if kind == CommandKind::Copy {
        memory.write(destination, &data)?;
    }
    Ok(Command { kind, source, destination, data })
}
