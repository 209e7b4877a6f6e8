//! When instructions begin: a clock that waits for results that are not available yet.

use crate::timing::{Counts, Timing};

/// Float registers are numbered behind the integer registers.
const FLOATS: usize = 32;

/// A register of either kind, for timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u8);

impl Slot {
    /// An integer register.
    pub fn integer(register: u8) -> Slot {
        Slot(register)
    }

    /// A register of the FPU.
    pub fn float(register: u8) -> Slot {
        Slot(register + FLOATS as u8)
    }
}

/// The source of a register's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum From {
    #[default]
    Elsewhere,
    Load,
    Fpu,
}

/// Why an instruction takes longer than a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The instruction needs several cycles.
    Multicycle,
    /// The instruction jumps.
    Control,
    /// The access crosses a word's boundary.
    Misaligned,
}

/// The clock of a core, and its counts.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The table of costs.
    pub timing: Timing,
    counts: Counts,
    /// The cycle from which each register can be used.
    ready: [(u64, From); 2 * FLOATS],
    /// The cycle from which the FPU takes an instruction.
    fpu_is_free: u64,
    /// The register that the last instruction wrote.
    last_written: Option<Slot>,
}

impl Pipeline {
    /// At cycle zero, with nothing to wait for.
    pub fn new(timing: Timing) -> Pipeline {
        Pipeline {
            timing,
            counts: Counts::default(),
            ready: [(0, From::Elsewhere); 2 * FLOATS],
            fpu_is_free: 0,
            last_written: None,
        }
    }

    /// The counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Waits until these registers can be used.
    pub fn wait_for(&mut self, slots: &[Slot]) {
        for slot in slots {
            let (cycle, from) = self.ready[usize::from(slot.0)];
            let waited = cycle.saturating_sub(self.counts.cycles);
            self.counts.cycles += waited;
            match from {
                From::Fpu => self.counts.stalls.float += waited,
                _ => self.counts.stalls.load_use += waited,
            }
        }
    }

    /// Waits until the FPU takes an instruction.
    pub fn wait_for_fpu(&mut self) {
        let waited = self.fpu_is_free.saturating_sub(self.counts.cycles);
        self.counts.cycles += waited;
        self.counts.stalls.float += waited;
    }

    /// A jump to a register waits if the instruction before wrote it.
    pub fn wait_to_jump_to(&mut self, slot: Slot) {
        if self.last_written == Some(slot) {
            self.counts.cycles += self.timing.jump_register;
            self.counts.stalls.control += self.timing.jump_register;
        }
    }

    /// Ends an instruction; `why` is the reason if it took more than a cycle.
    pub fn pass(&mut self, cycles: u64, why: Why) {
        self.counts.instructions += 1;
        self.counts.cycles += cycles;
        let stalls = &mut self.counts.stalls;
        let more = cycles.saturating_sub(1);
        match why {
            Why::Multicycle => stalls.multicycle += more,
            Why::Control => stalls.control += more,
            Why::Misaligned => stalls.misaligned += more,
        }
        self.last_written = None;
    }

    /// Ends a load or store.
    pub fn pass_memory(&mut self, crosses_words: bool, is_store: bool) {
        let more = if crosses_words { self.timing.misaligned } else { 0 };
        self.pass(self.timing.memory + more, Why::Misaligned);
        let counted = if is_store { &mut self.counts.stores } else { &mut self.counts.loads };
        *counted += 1;
    }

    /// The last instruction wrote this register, which can be used at once.
    pub fn written(&mut self, slot: Slot) {
        self.set_ready(slot, 0, From::Elsewhere);
    }

    /// The last instruction loaded this register.
    pub fn loaded(&mut self, slot: Slot) {
        self.set_ready(slot, self.timing.load_use, From::Load);
    }

    /// The FPU computes this register.
    pub fn computed(&mut self, slot: Slot, latency: u64) {
        self.set_ready(slot, latency, From::Fpu);
    }

    /// The FPU takes no instruction for `cycles` cycles.
    pub fn occupy_fpu(&mut self, cycles: u64) {
        self.fpu_is_free = self.counts.cycles + cycles;
    }

    fn set_ready(&mut self, slot: Slot, latency: u64, from: From) {
        if slot != Slot::integer(0) {
            self.ready[usize::from(slot.0)] = (self.counts.cycles + latency, from);
            self.last_written = Some(slot);
        }
    }
}
