//! When instructions begin: a clock that waits for results that are not there yet.

use crate::timing::{Counts, Timing};

/// Floats come behind the integers.
const FLOATS: usize = 32;

/// A register of either kind, for the sake of time.
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

/// Who a register's value comes from.
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
    /// It has more to do.
    Multicycle,
    /// It goes elsewhere.
    Control,
    /// It crosses a word's boundary.
    Misaligned,
}

/// The clock of a core, and what it has counted.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The table.
    pub timing: Timing,
    counts: Counts,
    /// From which cycle on each register can be used.
    ready: [(u64, From); 2 * FLOATS],
    /// From which cycle on the FPU takes an instruction.
    fpu_is_free: u64,
    /// What the last instruction wrote.
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

    /// What has been counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Waits until these can be used.
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

    /// An instruction is over; what lasted longer than a cycle did so for a reason.
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

    /// A load or store is over.
    pub fn pass_memory(&mut self, crosses_words: bool, is_store: bool) {
        let more = if crosses_words { self.timing.misaligned } else { 0 };
        self.pass(self.timing.memory + more, Why::Misaligned);
        let counted = if is_store { &mut self.counts.stores } else { &mut self.counts.loads };
        *counted += 1;
    }

    /// The instruction that has just passed wrote this, to be used at once.
    pub fn written(&mut self, slot: Slot) {
        self.set_ready(slot, 0, From::Elsewhere);
    }

    /// It loaded this.
    pub fn loaded(&mut self, slot: Slot) {
        self.set_ready(slot, self.timing.load_use, From::Load);
    }

    /// The FPU is computing this.
    pub fn computed(&mut self, slot: Slot, latency: u64) {
        self.set_ready(slot, latency, From::Fpu);
    }

    /// The FPU takes nothing for so many cycles.
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
