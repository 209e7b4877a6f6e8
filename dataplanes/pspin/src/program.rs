//! Programs: executables in ELF of 32 bits, little-endian, for RISC-V. Only what loading needs is read.

use std::collections::BTreeMap;

use thiserror::Error;

const MACHINE_RISCV: u32 = 243;
const TYPE_EXECUTABLE: u32 = 2;
const SEGMENT_LOAD: u32 = 1;
const SECTION_SYMBOLS: u32 = 2;
/// The least size of an entry of each table.
const PROGRAM_HEADER: usize = 32;
const SECTION_HEADER: usize = 40;
const SYMBOL: usize = 16;

/// Why bytes are not a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAProgram {
    /// The file has another format.
    #[error("this is not an ELF file of 32 bits, little-endian")]
    Format,
    /// The ELF file is for another machine.
    #[error("this is not an executable for RISC-V")]
    Machine,
    /// A part lies behind the end of the file.
    #[error("the file ends at byte {length}, and its {what} would be at {at}")]
    Truncated {
        /// The part.
        what: &'static str,
        /// Its place.
        at: usize,
        /// The length of the file.
        length: usize,
    },
}

/// Bytes, and their place in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address of the first byte.
    pub address: u32,
    /// The bytes in the file.
    pub bytes: Vec<u8>,
    /// How many bytes of memory it has; those that the file does not have are zero.
    pub memory_bytes: u32,
}

/// A program, ready to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The address at which it would begin.
    pub entry: u32,
    /// The contents of memory.
    pub segments: Vec<Segment>,
    /// Addresses of its functions and variables.
    pub symbols: BTreeMap<String, u32>,
}

impl Program {
    /// Reads an ELF file.
    pub fn read(file: &[u8]) -> Result<Program, NotAProgram> {
        let file = File(file);
        if file.0.get(..6) != Some(b"\x7fELF\x01\x01") {
            return Err(NotAProgram::Format);
        }
        if (file.half(16)?, file.half(18)?) != (TYPE_EXECUTABLE, MACHINE_RISCV) {
            return Err(NotAProgram::Machine);
        }
        Ok(Program { entry: file.word(24)?, segments: segments(file)?, symbols: symbols(file)? })
    }
}

fn segments(file: File) -> Result<Vec<Segment>, NotAProgram> {
    let (table, size, count) = (file.word(28)? as usize, file.half(42)? as usize, file.half(44)? as usize);
    let mut segments = Vec::new();
    for header in entries(table, size.max(PROGRAM_HEADER), count) {
        if file.word(header)? != SEGMENT_LOAD {
            continue;
        }
        let (offset, bytes) = (file.word(header + 4)? as usize, file.word(header + 16)? as usize);
        segments.push(Segment {
            address: file.word(header + 8)?,
            bytes: file.slice("segment", offset, bytes)?.to_vec(),
            memory_bytes: file.word(header + 20)?,
        });
    }
    Ok(segments)
}

fn symbols(file: File) -> Result<BTreeMap<String, u32>, NotAProgram> {
    let (table, size, count) = (file.word(32)? as usize, file.half(46)? as usize, file.half(48)? as usize);
    let size = size.max(SECTION_HEADER);
    let mut symbols = BTreeMap::new();
    for header in entries(table, size, count) {
        if file.word(header + 4)? != SECTION_SYMBOLS {
            continue;
        }
        let (offset, bytes) = (file.word(header + 16)? as usize, file.word(header + 20)? as usize);
        let names_header = table.saturating_add(size.saturating_mul(file.word(header + 24)? as usize));
        let names = file.word(names_header.saturating_add(16))? as usize;
        for symbol in entries(offset, SYMBOL, bytes / SYMBOL) {
            let name = file.name(names.saturating_add(file.word(symbol)? as usize))?;
            if !name.is_empty() {
                symbols.insert(name, file.word(symbol + 4)?);
            }
        }
    }
    Ok(symbols)
}

/// The places of a table's entries.
fn entries(table: usize, size: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |number| table.saturating_add(number.saturating_mul(size)))
}

#[derive(Clone, Copy)]
struct File<'a>(&'a [u8]);

impl<'a> File<'a> {
    fn slice(self, what: &'static str, at: usize, bytes: usize) -> Result<&'a [u8], NotAProgram> {
        let slice = at.checked_add(bytes).and_then(|end| self.0.get(at..end));
        slice.ok_or(NotAProgram::Truncated { what, at, length: self.0.len() })
    }

    fn half(self, at: usize) -> Result<u32, NotAProgram> {
        let bytes = self.slice("header", at, 2)?;
        Ok(u32::from(bytes[0]) | u32::from(bytes[1]) << 8)
    }

    fn word(self, at: usize) -> Result<u32, NotAProgram> {
        Ok(self.half(at)? | self.half(at.saturating_add(2))? << 16)
    }

    /// The text up to a zero byte.
    fn name(self, at: usize) -> Result<String, NotAProgram> {
        let rest = self.0.get(at..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0);
        let end = end.ok_or(NotAProgram::Truncated { what: "name", at, length: self.0.len() })?;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An executable with one segment and no sections.
    fn executable() -> Vec<u8> {
        let mut file = vec![0; 88];
        file[..6].copy_from_slice(b"\x7fELF\x01\x01");
        file[16..20].copy_from_slice(&[2, 0, 243, 0]);
        let words = [(24, 0x100), (28, 52), (52, 1), (56, 84), (60, 0x100), (68, 4), (72, 6)];
        for (at, value) in words {
            file[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        }
        (file[42], file[44]) = (32, 1);
        file[84..].copy_from_slice(&[1, 2, 3, 4]);
        file
    }

    #[test]
    fn a_segment_is_what_the_file_holds_and_zeros_behind_it() {
        let segment = Segment { address: 0x100, bytes: vec![1, 2, 3, 4], memory_bytes: 6 };
        let program = Program { entry: 0x100, segments: vec![segment], symbols: BTreeMap::new() };
        assert_eq!(Program::read(&executable()), Ok(program));
    }

    #[test]
    fn what_is_not_a_program_is_refused_and_any_beginning_of_one_too() {
        assert_eq!(Program::read(b"#!/bin/sh"), Err(NotAProgram::Format));
        let file = executable();
        for length in 6..file.len() {
            assert!(matches!(Program::read(&file[..length]), Err(NotAProgram::Truncated { .. })), "{length}");
        }
        let mut other = file.clone();
        other[18] = 62;
        assert_eq!(Program::read(&other), Err(NotAProgram::Machine));
    }

    #[test]
    fn no_file_with_other_bytes_panics() {
        let file = executable();
        for (at, value) in (0..file.len()).flat_map(|at| [0, 1, 0x7f, 0x80, 0xff].map(|value| (at, value))) {
            let mut other = file.clone();
            other[at] = value;
            let _ = Program::read(&other);
        }
    }

    #[test]
    fn offsets_that_overflow_are_refused() {
        let mut file = executable();
        file[56..60].copy_from_slice(&u32::MAX.to_le_bytes());
        let at = u32::MAX as usize;
        assert_eq!(Program::read(&file), Err(NotAProgram::Truncated { what: "segment", at, length: 88 }));
    }
}
