//! Flat memory: some regions, a window in which loads test and set, and the registers of a command unit.

use crate::fault::OutOfBounds;

/// Registers of the command unit; a store to the last of them gives a command.
pub const COMMAND_REGISTERS: usize = 5;

/// The memory that a core can address. Little-endian; any alignment.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
    locks: Option<Locks>,
    commands: Option<Commands>,
}

#[derive(Clone, Debug)]
struct Region {
    base: u32,
    bytes: Vec<u8>,
}

/// A window of locks (PULP): a load from `base + x` returns the word at `target + x` and leaves all ones there.
#[derive(Clone, Copy, Debug)]
struct Locks {
    base: u32,
    bytes: u32,
    target: u32,
}

#[derive(Clone, Debug)]
struct Commands {
    base: u32,
    registers: [u32; COMMAND_REGISTERS],
    is_given: bool,
}

impl Memory {
    /// A memory without regions.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds zeroed memory from an address on.
    pub fn with_region(mut self, base: u32, bytes: u32) -> Memory {
        self.regions.push(Region { base, bytes: vec![0; bytes as usize] });
        self
    }

    /// Adds a window through which words from `target` on are tested and set.
    pub fn with_locks(mut self, base: u32, bytes: u32, target: u32) -> Memory {
        self.locks = Some(Locks { base, bytes, target });
        self
    }

    /// Exchanges the command unit's registers with others: each core of a cluster has its own.
    pub(crate) fn exchange_commands(&mut self, registers: &mut [u32; COMMAND_REGISTERS]) {
        if let Some(commands) = &mut self.commands {
            std::mem::swap(&mut commands.registers, registers);
        }
    }

    /// Adds the registers of a command unit.
    pub fn with_commands(mut self, base: u32) -> Memory {
        self.commands = Some(Commands { base, registers: [0; COMMAND_REGISTERS], is_given: false });
        self
    }

    /// The bytes from an address on.
    pub fn bytes(&self, address: u32, bytes: u32) -> Result<&[u8], OutOfBounds> {
        let found = self.regions.iter().find_map(|region| {
            let start = address.checked_sub(region.base)? as usize;
            region.bytes.get(start..start.checked_add(bytes as usize)?)
        });
        found.ok_or(OutOfBounds { address, bytes })
    }

    /// The same, mutable.
    pub fn bytes_mut(&mut self, address: u32, bytes: u32) -> Result<&mut [u8], OutOfBounds> {
        let found = self.regions.iter_mut().find_map(|region| {
            let start = address.checked_sub(region.base)? as usize;
            region.bytes.get_mut(start..start.checked_add(bytes as usize)?)
        });
        found.ok_or(OutOfBounds { address, bytes })
    }

    /// Writes bytes from outside: a program or a packet.
    pub fn write(&mut self, address: u32, data: &[u8]) -> Result<(), OutOfBounds> {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.bytes_mut(address, length)?.copy_from_slice(data);
        Ok(())
    }

    /// Loads 1, 2 or 4 bytes without their sign.
    pub fn load(&mut self, address: u32, bytes: u32) -> Result<u32, OutOfBounds> {
        if let Some(value) = self.command_register(address, bytes) {
            return Ok(*value);
        }
        if let Some(target) = self.lock_behind(address, bytes) {
            let value = self.load(target, bytes)?;
            self.store(target, bytes, u32::MAX)?;
            return Ok(value);
        }
        let bytes = self.bytes(address, bytes)?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    }

    /// Stores the low 1, 2 or 4 bytes.
    pub fn store(&mut self, address: u32, bytes: u32, value: u32) -> Result<(), OutOfBounds> {
        if let Some(register) = self.command_register(address, bytes) {
            *register = value;
            if let Some(commands) = &mut self.commands {
                commands.is_given |= address == commands.base + 4 * (COMMAND_REGISTERS as u32 - 1);
            }
            return Ok(());
        }
        let stored = self.bytes_mut(address, bytes)?;
        stored.copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
        Ok(())
    }

    /// The registers of a command that was given since the last call.
    pub fn take_command(&mut self) -> Option<[u32; COMMAND_REGISTERS]> {
        let commands = self.commands.as_mut().filter(|commands| commands.is_given)?;
        commands.is_given = false;
        Some(commands.registers)
    }

    /// True if a command waits to be taken.
    pub fn has_command(&self) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.is_given)
    }

    fn command_register(&mut self, address: u32, bytes: u32) -> Option<&mut u32> {
        let commands = self.commands.as_mut()?;
        let offset = address.checked_sub(commands.base)?;
        let is_word = bytes == 4 && offset.is_multiple_of(4);
        commands.registers.get_mut(offset as usize / 4).filter(|_| is_word)
    }

    fn lock_behind(&self, address: u32, bytes: u32) -> Option<u32> {
        let locks = self.locks?;
        let offset = address.checked_sub(locks.base)?;
        (bytes == 4 && offset < locks.bytes).then_some(locks.target + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_at_any_alignment() {
        let mut memory = Memory::new().with_region(0x100, 8);
        memory.store(0x101, 4, 0x1234_5678).unwrap();
        assert_eq!(memory.bytes(0x100, 6).unwrap(), [0, 0x78, 0x56, 0x34, 0x12, 0]);
        assert_eq!(memory.load(0x102, 2), Ok(0x3456));
        memory.store(0x102, 1, 0xabcd).unwrap();
        assert_eq!(memory.load(0x101, 4), Ok(0x1234_cd78));
    }

    #[test]
    fn what_is_outside_of_all_regions_is_said_with_its_address() {
        let mut memory = Memory::new().with_region(0x100, 8).with_region(0x200, 4);
        for (address, bytes) in [(0xff, 1), (0x105, 4), (0x204, 1), (u32::MAX, 4)] {
            assert_eq!(memory.load(address, bytes), Err(OutOfBounds { address, bytes }));
            assert_eq!(memory.store(address, bytes, 0), Err(OutOfBounds { address, bytes }));
        }
        assert_eq!(memory.load(0x200, 4), Ok(0));
    }

    #[test]
    fn a_lock_is_taken_once() {
        let mut memory = Memory::new().with_region(0x100, 8).with_locks(0x1100, 8, 0x100);
        assert_eq!(memory.load(0x1104, 4), Ok(0));
        assert_eq!(memory.load(0x1104, 4), Ok(u32::MAX));
        assert_eq!(memory.load(0x100, 4), Ok(0));
        memory.store(0x104, 4, 0).unwrap();
        assert_eq!(memory.load(0x1104, 4), Ok(0));
    }

    #[test]
    fn a_store_to_the_last_register_gives_a_command_once() {
        let mut memory = Memory::new().with_commands(0x1000);
        memory.store(0x1004, 4, 7).unwrap();
        assert_eq!(memory.take_command(), None);
        memory.store(0x1010, 4, 1).unwrap();
        assert_eq!(memory.take_command(), Some([0, 7, 0, 0, 1]));
        assert_eq!(memory.take_command(), None);
        assert!(memory.store(0x1002, 4, 0).is_err());
    }
}
