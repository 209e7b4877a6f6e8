//! Random programs of RV32IMF end with the registers that QEMU ends them with.
//!
//! Where `qemu-riscv32` (Debian's qemu-user) is not installed, there is nothing to compare with, and the test says so.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tributary_pspin::{Core, Memory, Program, Stop, Timing};

const QEMU: &str = "qemu-riscv32";
/// Where a program is, and how much may follow it.
const BASE: u32 = 0x1_0000;
const MEMORY_BYTES: u32 = 0x1_0000;
/// Where the registers are written in the end: 32 integers, 32 floats, the flags.
const DUMP: u32 = BASE + 0x8000;
const DUMP_WORDS: u32 = 65;

/// The last register is where addresses are made.
const ADDRESS: u32 = 31;

fn i(opcode: u32, funct3: u32, rd: u32, rs1: u32, imm: u32) -> u32 {
    imm << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

fn r(opcode: u32, funct3: u32, funct7: u32, rd: u32, rs1: u32, rs2: u32) -> u32 {
    funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

fn store(opcode: u32, from: u32, offset: u32) -> u32 {
    (offset >> 5) << 25 | from << 20 | ADDRESS << 15 | 2 << 12 | (offset & 31) << 7 | opcode
}

/// Puts any value into a register.
fn set(program: &mut Vec<u32>, rd: u32, value: u32) {
    program.push(value.wrapping_add(0x800) & 0xffff_f000 | rd << 7 | 0x37);
    program.push(i(0x13, 0, rd, rd, value & 0xfff));
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) as u32
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.next() % bound
    }

    /// Values at the edges more often than others.
    fn value(&mut self) -> u32 {
        let special = [0, 1, u32::MAX, 1 << 31, i32::MAX as u32, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0x7f80_0001]
            .into_iter()
            .chain([
                0x3f80_0000,
                0xbf80_0000,
                0x3f00_0000,
                0x4f00_0000,
                0xcf00_0000,
                0x4f80_0000,
                0x7f7f_ffff,
                0x80_0000,
            ])
            .collect::<Vec<_>>();
        match self.below(4) {
            0 => special[self.below(special.len() as u32) as usize],
            1 => self.next() & 0x83ff_ffff | 0x3c00_0000,
            2 => self.next() & 0x807f_ffff,
            _ => self.next(),
        }
    }

    /// An instruction that computes. The address register is left alone.
    fn instruction(&mut self) -> u32 {
        let (rd, rs1, rs2) = (self.below(31), self.below(31), self.below(31));
        match self.below(10) {
            0 | 1 => {
                let plain = [(0, 0), (0x20, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0x20, 5), (0, 6), (0, 7)];
                let (funct7, funct3) = plain[self.below(10) as usize];
                r(0x33, funct3, funct7, rd, rs1, rs2)
            }
            2 => r(0x33, self.below(8), 1, rd, rs1, rs2),
            3 => match self.below(8) {
                1 => i(0x13, 1, rd, rs1, self.below(32)),
                5 => i(0x13, 5, rd, rs1, self.below(32) | self.below(2) << 10),
                funct3 => i(0x13, funct3, rd, rs1, self.below(1 << 12)),
            },
            4 => self.next() & 0xffff_f000 | rd << 7 | 0x37,
            5 => self.rest_of_float(rd, rs1, rs2),
            6 => {
                let fused = [0x43, 0x47, 0x4b, 0x4f][self.below(4) as usize];
                self.below(32) << 27 | r(fused, 0, 0, rd, rs1, rs2)
            }
            7 => r(0x53, 0, [0xc, 0x2c][self.below(2) as usize], rd, rs1, 0),
            _ => r(0x53, 0, [0, 4, 8, 0xc][self.below(4) as usize], rd, rs1, rs2),
        }
    }

    fn rest_of_float(&mut self, rd: u32, rs1: u32, rs2: u32) -> u32 {
        match self.below(7) {
            0 => r(0x53, self.below(3), 0x10, rd, rs1, rs2),
            1 => r(0x53, self.below(2), 0x14, rd, rs1, rs2),
            2 => r(0x53, self.below(3), 0x50, rd, rs1, rs2),
            3 => r(0x53, self.below(5), 0x60, rd, rs1, self.below(2)),
            4 => r(0x53, 0, 0x68, rd, rs1, self.below(2)),
            5 => r(0x53, self.below(2), 0x70, rd, rs1, 0),
            _ => r(0x53, 0, 0x78, rd, rs1, 0),
        }
    }
}

/// Fills all registers, computes, writes them out and exits.
fn program(seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    let mut program = Vec::new();
    for register in 0..32 {
        set(&mut program, ADDRESS, random.value());
        program.push(r(0x53, 0, 0x78, register, ADDRESS, 0));
    }
    (1..31).for_each(|register| set(&mut program, register, random.value()));
    (0..100).for_each(|_| program.push(random.instruction()));
    set(&mut program, ADDRESS, DUMP);
    (0..32).for_each(|register| program.push(store(0x23, register, 4 * register)));
    (0..32).for_each(|register| program.push(store(0x27, register, 128 + 4 * register)));
    program.extend([i(0x73, 2, 5, 0, 1), store(0x23, 5, 256)]);
    // write(1, DUMP, bytes), then exit(0), as Linux has them.
    for (register, value) in [(10, 1), (11, DUMP), (12, 4 * DUMP_WORDS), (17, 64)] {
        set(&mut program, register, value);
    }
    program.push(0x73);
    set(&mut program, 10, 0);
    set(&mut program, 17, 93);
    program.push(0x73);
    program
}

/// An executable of one segment.
fn elf(program: &[u32]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(words(&[243 << 16 | 2, 1, BASE, 52, 0, 2, 32 << 16 | 52, 1, 0]));
    let bytes = 4 * program.len() as u32;
    file.extend(words(&[1, 0x1000, BASE, BASE, bytes, MEMORY_BYTES, 7, 0x1000]));
    file.resize(0x1000, 0);
    file.extend(words(program));
    file
}

fn simulated(file: &[u8]) -> Vec<u8> {
    let program = Program::read(file).unwrap();
    let mut memory = Memory::new().with_region(BASE, MEMORY_BYTES);
    memory.write(program.segments[0].address, &program.segments[0].bytes).unwrap();
    let mut core = Core::new(Timing::RI5CY);
    core.call(program.entry, 0, &[]);
    assert_eq!(core.run(&mut memory, 1_000_000), Ok(Stop::Called));
    memory.bytes(DUMP, 4 * DUMP_WORDS).unwrap().to_vec()
}

fn emulated(path: &Path, file: &[u8]) -> Vec<u8> {
    fs::write(path, file).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(QEMU).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn random_programs_end_as_they_do_under_qemu() {
    if Command::new(QEMU).arg("--version").output().is_err() {
        eprintln!("left out: {QEMU} is not installed (Debian's qemu-user)");
        return;
    }
    let path = env::temp_dir().join(format!("tributary-pspin-{}", std::process::id()));
    for seed in 0..100 {
        let file = elf(&program(seed));
        let (ours, theirs) = (simulated(&file), emulated(&path, &file));
        let words =
            |bytes: &[u8]| bytes.chunks(4).map(|word| word.try_into().unwrap()).map(u32::from_le_bytes).collect();
        let (ours, theirs): (Vec<u32>, Vec<u32>) = (words(&ours), words(&theirs));
        let differences: Vec<_> =
            (0..ours.len()).filter(|&at| ours[at] != theirs.get(at).copied().unwrap_or(0)).collect();
        assert!(differences.is_empty(), "seed {seed}: words {differences:?} of the registers differ");
    }
    fs::remove_file(&path).unwrap();
}
