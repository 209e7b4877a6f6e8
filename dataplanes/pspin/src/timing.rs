//! The cost of an instruction, and the costs of a program.
//!
//! The figures of [`Timing::RI5CY`] come from CV32E40P's manual (the core that RI5CY became), "Pipeline Details": its
//! table "Cycle counts per instruction type" and its list of hazards. `dataplanes/pspin/README.md` goes through them one by one.

use std::ops::Sub;

/// Cycles for each kind of instruction, for memories that answer in one cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Integer arithmetic, packed arithmetic, multiply-accumulate, set-up of a hardware loop.
    pub alu: u64,
    /// The low word of a product.
    pub mul: u64,
    /// The high word of a product.
    pub mulh: u64,
    /// A division, without the one cycle that each leading zero bit of the divisor takes.
    pub div: u64,
    /// A load or store, with or without post-increment.
    pub memory: u64,
    /// Additional cycles if it crosses a word's boundary.
    pub misaligned: u64,
    /// Cycles that must lie between a load and an instruction that uses what it loads.
    pub load_use: u64,
    /// A jump.
    pub jump: u64,
    /// Additional cycles if the instruction before wrote the jump's register.
    pub jump_register: u64,
    /// A branch that is not taken.
    pub branch: u64,
    /// A branch that is taken.
    pub branch_taken: u64,
    /// Access to a status register that flushes the pipeline (counters).
    pub csr_counter: u64,
    /// Access to any other status register.
    pub csr: u64,
    /// `fence`.
    pub fence: u64,
    /// An instruction of the FPU, if no instruction waits for its result.
    pub float: u64,
    /// Cycles between an addition, a multiplication or a fused one and the use of its result: the FPU's pipeline
    /// registers.
    pub float_latency: u64,
    /// The same for comparisons, conversions and moves.
    pub float_other_latency: u64,
    /// The same for a division or square root; meanwhile the FPU takes nothing else.
    pub float_div_latency: u64,
}

impl Timing {
    /// RI5CY with an FPU that has one pipeline register.
    pub const RI5CY: Timing = Timing {
        alu: 1,
        mul: 1,
        mulh: 5,
        div: 3,
        memory: 1,
        misaligned: 1,
        load_use: 1,
        jump: 2,
        jump_register: 1,
        branch: 1,
        branch_taken: 3,
        csr_counter: 4,
        csr: 1,
        fence: 1,
        float: 1,
        float_latency: 1,
        float_other_latency: 1,
        float_div_latency: 18,
    };
}

impl Default for Timing {
    fn default() -> Timing {
        Timing::RI5CY
    }
}

/// Cycles in which no instruction began, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Waited for the value of a load.
    pub load_use: u64,
    /// Waited for the FPU: for a result, or for its divider.
    pub float: u64,
    /// The second half of an access across words.
    pub misaligned: u64,
    /// The pipeline was filled again behind a jump or a taken branch.
    pub control: u64,
    /// Additional cycles of the multiplier and divider, and of counters.
    pub multicycle: u64,
}

impl Stalls {
    /// All stalls.
    pub fn total(&self) -> u64 {
        self.load_use + self.float + self.misaligned + self.control + self.multicycle
    }
}

/// The costs of a program since the core began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cycles: instructions and stalls.
    pub cycles: u64,
    /// How many instructions were carried out.
    pub instructions: u64,
    /// How many of them were loads.
    pub loads: u64,
    /// How many of them were stores.
    pub stores: u64,
    /// Cycles without an instruction.
    pub stalls: Stalls,
}

impl Sub for Counts {
    type Output = Counts;

    /// The counts since an earlier state.
    fn sub(self, earlier: Counts) -> Counts {
        Counts {
            cycles: self.cycles - earlier.cycles,
            instructions: self.instructions - earlier.instructions,
            loads: self.loads - earlier.loads,
            stores: self.stores - earlier.stores,
            stalls: Stalls {
                load_use: self.stalls.load_use - earlier.stalls.load_use,
                float: self.stalls.float - earlier.stalls.float,
                misaligned: self.stalls.misaligned - earlier.stalls.misaligned,
                control: self.stalls.control - earlier.stalls.control,
                multicycle: self.stalls.multicycle - earlier.stalls.multicycle,
            },
        }
    }
}
