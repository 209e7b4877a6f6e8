//! The cycles of operators that people write. An operator's module becomes a program for the cores ([`build`]), which runs in
//! the instruction simulator ([`count`]); a row of a table ([`line()`]) hands the cycles to the network simulator.

pub mod build;

use tributary_operators::UserOperator;
use tributary_proto::contract::custom_op::{Capacity, CustomOp};

use crate::{Program, Timing, Unit};

/// The first line of a table.
pub const HEADER: &str = "sha256,name,element,element_bytes,cycles_per_call,cycles_per_element,fuel_per_element";

/// The cycles of an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperatorCycles {
    /// Cycles of a call without its elements.
    pub per_call: f64,
    /// Cycles of an element.
    pub per_element: f64,
}

/// A row of a table.
pub fn line(operator: &UserOperator, cycles: &OperatorCycles) -> String {
    format!(
        "{},{},\"{}\",{},{:.3},{:.3},{}",
        operator.hash(),
        operator.name().replace([',', '"', '\n', '\r'], " "),
        operator.element(),
        operator.element_size(),
        cycles.per_call,
        cycles.per_element,
        operator.verdict().fuel_per_element
    )
}

/// Where the module's memory begins, and a word behind it; `handlers/operators/operator.c` has the same
/// addresses.
const MEMORY: u32 = 0x1000_2000;
const ANSWER: u32 = 0x100f_a000;
/// Bytes of a packet's elements.
const PAYLOAD: usize = 1024;
/// How many pairs of packets are averaged: the time of a call may depend on its elements.
const PACKETS: u64 = 32;
/// More cycles than any call may take.
const MOST_CYCLES: u64 = 1_000_000_000;

/// Counts the cycles of an operator's program, and compares its results with the module's. An error is half a sentence.
pub fn count(operator: &UserOperator, program: &[u8]) -> Result<OperatorCycles, String> {
    let program = Program::read(program).map_err(|error| error.to_string())?;
    let unit = Unit::new(&program, Timing::RI5CY).map_err(|error| error.to_string())?;
    let size = operator.element_size();
    let full = (PAYLOAD / size).max(1);
    let mut core = Core { unit, operator, first: 0, stride: (full * size).next_multiple_of(64) as u32 };
    core.prepare()?;
    let per_call = core.combine(0, 0)?;
    let mut all = 0;
    for packet in 0..PACKETS {
        all += core.combine(packet, full)?.saturating_sub(per_call);
    }
    let per_element = all as f64 / (PACKETS * full as u64) as f64;
    Ok(OperatorCycles { per_call: per_call as f64, per_element })
}

struct Core<'a> {
    unit: Unit,
    operator: &'a UserOperator,
    /// The first vector's place in the module's memory, and the distance to the second.
    first: u32,
    stride: u32,
}

impl Core<'_> {
    fn prepare(&mut self) -> Result<(), String> {
        self.unit.call("prepare", &[2 * self.stride, ANSWER], MOST_CYCLES).map_err(|_| {
            "the module's own memory does not fit into the 1 MiB of a cluster, or it does not begin".to_owned()
        })?;
        self.first = self.unit.memory().load(ANSWER, 4).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// The cycles of one call for `elements` elements of two drawn packets.
    fn combine(&mut self, packet: u64, elements: usize) -> Result<u64, String> {
        let [left, right] = [2 * packet, 2 * packet + 1].map(|seed| self.operator.sample(seed, elements));
        let at = [self.first, self.first + self.stride];
        for (at, vector) in at.into_iter().zip([&left, &right]) {
            self.unit.memory().write(MEMORY + at, vector).map_err(|error| error.to_string())?;
        }
        let arguments = [at[0], at[1], elements as u32];
        let (counts, _) = self.unit.call("combine", &arguments, MOST_CYCLES).map_err(|error| error.to_string())?;
        let got = self.unit.memory().bytes(MEMORY + at[0], left.len() as u32).map_err(|error| error.to_string())?;
        let mut instance = self.operator.instance(Capacity { vector_bytes: left.len(), accumulators: 1 });
        instance.store(0, &left).map_err(|fault| fault.0)?;
        instance.add(0, &right).map_err(|fault| fault.0)?;
        match got == instance.lanes(0, left.len()) {
            true => Ok(counts.cycles),
            false => Err("on the cores it gives other elements than in the sandbox".to_owned()),
        }
    }
}
