//! A tiny assembler, and a core that runs what it makes.

use tributary_pspin::{Core, Counts, Fault, Memory, Stop, Timing};

pub const CODE: u32 = 0x1000;
pub const DATA: u32 = 0x8000;

pub const A0: u32 = 10;
pub const A1: u32 = 11;
pub const A2: u32 = 12;
pub const A3: u32 = 13;
pub const A4: u32 = 14;

/// Opcodes.
pub const OP: u32 = 0x33;
pub const OP_IMM: u32 = 0x13;
pub const OP_FP: u32 = 0x53;
pub const LOAD: u32 = 0x03;
pub const STORE: u32 = 0x23;
pub const LOAD_FP: u32 = 0x07;
pub const STORE_FP: u32 = 0x27;
pub const LOAD_POST: u32 = 0x0b;
pub const STORE_POST: u32 = 0x2b;
pub const PACKED: u32 = 0x57;
pub const LOOP: u32 = 0x7b;
pub const SYSTEM: u32 = 0x73;

pub const RET: u32 = 0x0000_8067;
pub const NOP: u32 = 0x0000_0013;

pub fn r(opcode: u32, funct3: u32, funct7: u32, rd: u32, rs1: u32, rs2: u32) -> u32 {
    funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

pub fn i(opcode: u32, funct3: u32, rd: u32, rs1: u32, imm: i32) -> u32 {
    (imm as u32) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

pub fn s(opcode: u32, funct3: u32, rs1: u32, rs2: u32, imm: i32) -> u32 {
    let imm = imm as u32;
    (imm >> 5) << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | (imm & 31) << 7 | opcode
}

pub fn b(funct3: u32, rs1: u32, rs2: u32, offset: i32) -> u32 {
    let imm = offset as u32;
    let (high, low) = ((imm >> 12 & 1) << 6 | imm >> 5 & 63, (imm >> 1 & 15) << 1 | imm >> 11 & 1);
    high << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | low << 7 | 0x63
}

pub fn jal(rd: u32, offset: i32) -> u32 {
    let imm = offset as u32;
    let field = (imm >> 20 & 1) << 19 | (imm >> 1 & 0x3ff) << 9 | (imm >> 11 & 1) << 8 | imm >> 12 & 0xff;
    field << 12 | rd << 7 | 0x6f
}

pub fn li(rd: u32, imm: i32) -> u32 {
    i(OP_IMM, 0, rd, 0, imm)
}

pub fn add(rd: u32, rs1: u32, rs2: u32) -> u32 {
    r(OP, 0, 0, rd, rs1, rs2)
}

/// A core with a program, 4 KiB of it, and 4 KiB of data.
pub struct Machine {
    pub core: Core,
    pub memory: Memory,
}

impl Machine {
    pub fn new(program: &[u32]) -> Machine {
        let mut memory = Memory::new().with_region(CODE, 0x1000).with_region(DATA, 0x1000);
        let bytes: Vec<u8> = program.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.write(CODE, &bytes).unwrap();
        Machine { core: Core::new(Timing::RI5CY), memory }
    }

    pub fn run(&mut self, arguments: &[u32]) -> Result<Stop, Fault> {
        self.core.call(CODE, DATA + 0x1000, arguments);
        self.core.run(&mut self.memory, 10_000)
    }

    /// The integers from `DATA` on.
    pub fn data(&mut self, words: u32) -> Vec<u32> {
        (0..words).map(|at| self.memory.load(DATA + 4 * at, 4).unwrap()).collect()
    }
}

/// What a function gives for these arguments.
pub fn result(program: &[u32], arguments: &[u32]) -> u32 {
    let mut machine = Machine::new(&[program, &[RET]].concat());
    assert_eq!(machine.run(arguments), Ok(Stop::Returned));
    machine.core.integer(10)
}

/// What instructions cost, without the return behind them.
pub fn cost(program: &[u32], arguments: &[u32]) -> Counts {
    let run = |program: &[u32]| {
        let mut machine = Machine::new(program);
        assert_eq!(machine.run(arguments), Ok(Stop::Returned));
        machine.core.counts()
    };
    // What is behind must not wait: an instruction that uses nothing, and the return.
    run(&[program, &[NOP, RET]].concat()) - run(&[NOP, RET])
}
