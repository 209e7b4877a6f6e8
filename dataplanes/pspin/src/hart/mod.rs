//! One core: its registers, and the effects of instructions on them and on memory.

mod csr;
mod floating;
mod integer;

use crate::fault::Fault;
use crate::float::Flags;
use crate::instruction::{Condition, Instruction, Mode, Register, Width, decode};
use crate::memory::Memory;
use crate::pipeline::{Pipeline, Slot, Why};
use crate::timing::{Counts, Timing};
use csr::Loops;

/// Registers by their roles in the calling convention.
const RETURN_ADDRESS: Register = 1;
const STACK: Register = 2;
const FIRST_ARGUMENT: Register = 10;
/// The return address of a call from outside the program; no instruction can be there.
const OUTSIDE: u32 = 0xffff_fffe;

/// Why a core stopped, without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The function that was called has returned.
    Returned,
    /// `ecall`: registers say for what. The core may run on behind it.
    Called,
    /// `ebreak`: registers say for what. The core may run on behind it.
    Break,
    /// The memory's command unit was given a command. The core may run on behind it.
    Command,
}

/// A core without memory.
#[derive(Clone, Debug)]
pub struct Core {
    integers: [u32; 32],
    floats: [u32; 32],
    pc: u32,
    flags: Flags,
    rounding: u8,
    loops: Loops,
    pipeline: Pipeline,
}

impl Core {
    /// All registers are zero.
    pub fn new(timing: Timing) -> Core {
        Core {
            integers: [0; 32],
            floats: [0; 32],
            pc: 0,
            flags: Flags::NONE,
            rounding: 0,
            loops: Loops::default(),
            pipeline: Pipeline::new(timing),
        }
    }

    /// Makes the next [`Core::run`] call a function with up to eight arguments, on a stack that grows down from `stack`.
    pub fn call(&mut self, function: u32, stack: u32, arguments: &[u32]) {
        self.pc = function;
        self.integers[usize::from(RETURN_ADDRESS)] = OUTSIDE;
        self.integers[usize::from(STACK)] = stack;
        for (register, &argument) in (usize::from(FIRST_ARGUMENT)..).zip(arguments.iter().take(8)) {
            self.integers[register] = argument;
        }
    }

    /// Runs until something must be done outside, for at most `cycles` cycles.
    pub fn run(&mut self, memory: &mut Memory, cycles: u64) -> Result<Stop, Fault> {
        let end = self.counts().cycles.saturating_add(cycles);
        while !self.has_returned() {
            if self.counts().cycles >= end {
                return Err(Fault::CycleLimit { limit: cycles });
            }
            if let Some(stop) = self.step(memory)? {
                return Ok(stop);
            }
        }
        Ok(Stop::Returned)
    }

    /// Carries out one instruction.
    pub fn step(&mut self, memory: &mut Memory) -> Result<Option<Stop>, Fault> {
        let pc = self.pc;
        let fetched = if pc.is_multiple_of(4) { memory.bytes(pc, 4).ok() } else { None };
        let bytes = fetched.and_then(|bytes| bytes.try_into().ok()).ok_or(Fault::Fetch { pc })?;
        let word = u32::from_le_bytes(bytes);
        let instruction = decode(word).ok_or(Fault::Illegal { pc, word })?;
        self.pc = self.loops.next(pc);
        self.execute(instruction, pc, word, memory).inspect_err(|_| self.pc = pc)
    }

    /// True if the function that was called has returned, or none was called.
    pub fn has_returned(&self) -> bool {
        self.pc == OUTSIDE
    }

    /// The counts since the core was made.
    pub fn counts(&self) -> Counts {
        self.pipeline.counts()
    }

    /// An integer register.
    pub fn integer(&self, register: Register) -> u32 {
        self.integers[usize::from(register)]
    }

    /// Sets an integer register; the first stays zero.
    pub fn set_integer(&mut self, register: Register, value: u32) {
        if register != 0 {
            self.integers[usize::from(register)] = value;
        }
    }

    /// The bits of a float register.
    pub fn float(&self, register: Register) -> u32 {
        self.floats[usize::from(register)]
    }

    /// Sets the bits of a float register.
    pub fn set_float(&mut self, register: Register, bits: u32) {
        self.floats[usize::from(register)] = bits;
    }

    /// The address of the next instruction.
    pub fn pc(&self) -> u32 {
        self.pc
    }

    fn execute(&mut self, what: Instruction, pc: u32, word: u32, memory: &mut Memory) -> Result<Option<Stop>, Fault> {
        match what {
            Instruction::Jal { rd, offset } => self.jump(rd, pc, pc.wrapping_add_signed(offset)),
            Instruction::Jalr { rd, rs1, offset } => {
                self.pipeline.wait_for(&[Slot::integer(rs1)]);
                self.pipeline.wait_to_jump_to(Slot::integer(rs1));
                let to = self.integer(rs1).wrapping_add_signed(offset) & !1;
                self.jump(rd, pc, to);
            }
            Instruction::Branch { condition, rs1, rs2, offset } => {
                self.branch(condition, rs1, rs2, pc.wrapping_add_signed(offset));
            }
            Instruction::Load { width, signed, rd, rs1, mode } => {
                let address = self.address(rs1, mode, &[]);
                let raw = self.load(pc, memory, address, width)?;
                self.pipeline.pass_memory(crosses_words(address, width), false);
                self.advance(rs1, mode);
                self.set_integer(rd, if signed { sign_extended(raw, width) } else { raw });
                self.pipeline.loaded(Slot::integer(rd));
            }
            Instruction::Store { width, rs1, rs2, mode } => {
                let address = self.address(rs1, mode, &[Slot::integer(rs2)]);
                self.store(pc, memory, address, width, self.integer(rs2))?;
                self.advance(rs1, mode);
                return Ok(memory.has_command().then_some(Stop::Command));
            }
            Instruction::LoadFloat { rd, rs1, offset } => {
                let address = self.address(rs1, Mode::Offset(offset), &[Slot::float(rd)]);
                let bits = self.load(pc, memory, address, Width::Word)?;
                self.pipeline.pass_memory(crosses_words(address, Width::Word), false);
                self.set_float(rd, bits);
                self.pipeline.loaded(Slot::float(rd));
            }
            Instruction::StoreFloat { rs1, rs2, offset } => {
                let address = self.address(rs1, Mode::Offset(offset), &[Slot::float(rs2)]);
                self.store(pc, memory, address, Width::Word, self.float(rs2))?;
            }
            Instruction::Loop { number, set } => self.set_loop(pc, number, set),
            Instruction::Csr { op, rd, source, csr } => {
                self.access_csr(op, rd, source, csr).ok_or(Fault::Illegal { pc, word })?;
            }
            Instruction::Fence => self.pipeline.pass(self.pipeline.timing.fence, Why::Control),
            Instruction::Ecall | Instruction::Ebreak => {
                self.pipeline.pass(self.pipeline.timing.alu, Why::Multicycle);
                return Ok(Some(if what == Instruction::Ecall { Stop::Called } else { Stop::Break }));
            }
            _ if self.execute_integer(what, pc) => {}
            _ => self.execute_float(what).map_err(|mode| Fault::Rounding { pc, mode })?,
        }
        Ok(None)
    }

    fn jump(&mut self, rd: Register, pc: u32, to: u32) {
        self.pipeline.pass(self.pipeline.timing.jump, Why::Control);
        self.set_integer(rd, pc.wrapping_add(4));
        self.pipeline.written(Slot::integer(rd));
        self.pc = to;
    }

    fn branch(&mut self, condition: Condition, rs1: Register, rs2: Register, to: u32) {
        self.pipeline.wait_for(&[Slot::integer(rs1), Slot::integer(rs2)]);
        let (a, b) = (self.integer(rs1), self.integer(rs2));
        let is_taken = match condition {
            Condition::Equal => a == b,
            Condition::NotEqual => a != b,
            Condition::Less => (a as i32) < b as i32,
            Condition::NotLess => (a as i32) >= b as i32,
            Condition::LessUnsigned => a < b,
            Condition::NotLessUnsigned => a >= b,
        };
        let timing = &self.pipeline.timing;
        let cycles = if is_taken { timing.branch_taken } else { timing.branch };
        self.pipeline.pass(cycles, Why::Control);
        if is_taken {
            self.pc = to;
        }
    }

    /// The address of an access, once its registers and the others are available.
    fn address(&mut self, base: Register, mode: Mode, others: &[Slot]) -> u32 {
        self.pipeline.wait_for(&[Slot::integer(base)]);
        self.pipeline.wait_for(others);
        if let Mode::Register(offset) | Mode::PostRegister(offset) = mode {
            self.pipeline.wait_for(&[Slot::integer(offset)]);
        }
        match mode {
            Mode::Offset(offset) => self.integer(base).wrapping_add_signed(offset),
            Mode::Register(offset) => self.integer(base).wrapping_add(self.integer(offset)),
            Mode::PostOffset(_) | Mode::PostRegister(_) => self.integer(base),
        }
    }

    /// Moves a base register behind an access.
    fn advance(&mut self, base: Register, mode: Mode) {
        let by = match mode {
            Mode::Offset(_) | Mode::Register(_) => return,
            Mode::PostOffset(by) => by as u32,
            Mode::PostRegister(register) => self.integer(register),
        };
        self.set_integer(base, self.integer(base).wrapping_add(by));
        self.pipeline.written(Slot::integer(base));
    }

    fn load(&self, pc: u32, memory: &mut Memory, address: u32, width: Width) -> Result<u32, Fault> {
        memory.load(address, width as u32).map_err(|what| Fault::Access { pc, what })
    }

    fn store(&mut self, pc: u32, memory: &mut Memory, address: u32, width: Width, value: u32) -> Result<(), Fault> {
        memory.store(address, width as u32, value).map_err(|what| Fault::Access { pc, what })?;
        self.pipeline.pass_memory(crosses_words(address, width), true);
        Ok(())
    }
}

fn crosses_words(address: u32, width: Width) -> bool {
    address % 4 + width as u32 > 4
}

fn sign_extended(raw: u32, width: Width) -> u32 {
    match width {
        Width::Byte => raw as i8 as u32,
        Width::Half => raw as i16 as u32,
        Width::Word => raw,
    }
}
