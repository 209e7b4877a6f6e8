//! The costs of the handlers' operations: `experiments/pspin-cycles.csv`, which was counted by running them
//! (`dataplanes/pspin/README.md`).

use tributary_numeric::DType;
use tributary_proto::contract::work::{Needs, Work};

use super::operators::OperatorCycles;
use super::steps::{Called, Kind, Spent};

/// The file, which is part of the program.
const COUNTED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/pspin-cycles.csv"));

/// How handlers' inner loops are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// In C.
    C,
    /// With RI5CY's own instructions.
    #[default]
    Xpulp,
}

/// How a handler keeps its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One buffer.
    Single,
    /// Several buffers.
    Multi,
    /// A tree of buffers.
    Tree,
    /// A hash table.
    Hash,
    /// An array.
    Array,
}

impl Storage {
    /// All storages.
    pub const ALL: [Storage; 5] = [Storage::Single, Storage::Multi, Storage::Tree, Storage::Hash, Storage::Array];

    /// The name in the file, and in handlers' names.
    pub const fn name(self) -> &'static str {
        match self {
            Storage::Single => "single",
            Storage::Multi => "multi",
            Storage::Tree => "tree",
            Storage::Hash => "hash",
            Storage::Array => "array",
        }
    }

    /// The storage of a block of which a handler needs this.
    pub fn of(needs: Needs) -> Storage {
        match needs {
            Needs::Nothing | Needs::Buffer(0 | 1) => Storage::Single,
            Needs::Buffer(_) => Storage::Multi,
            Needs::Leaf(..) => Storage::Tree,
            Needs::Table => Storage::Hash,
            Needs::Array => Storage::Array,
        }
    }

    /// The beginning of its programs' names.
    pub const fn program(self) -> &'static str {
        if matches!(self, Storage::Hash | Storage::Array) { "sparse" } else { "dense" }
    }
}

/// The names in the file of the steps that are counted.
const STEPS: [&str; 15] = [
    "begin",
    "copy",
    "combine",
    "level",
    "merge",
    "try",
    "send",
    "move",
    "hit",
    "insert",
    "spill",
    "scan_zero",
    "scan_value",
    "end",
    "forget",
];

/// Cycles of each step of one handler; zero for steps that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steps([f64; STEPS.len()]);

impl Steps {
    /// Cycles of one step by name.
    ///
    /// # Panics
    /// If there is no such step.
    pub fn of(&self, step: &str) -> f64 {
        self.0[index_of(step)]
    }

    fn set(&mut self, step: &str, cycles: f64) {
        self.0[index_of(step)] = cycles;
    }
}

fn index_of(step: &str) -> usize {
    STEPS.iter().position(|name| *name == step).expect("a step of the list")
}

/// The costs of the handlers for one type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    by_storage: [Steps; Storage::ALL.len()],
    /// Bytes of an element.
    size: u64,
    /// Cycles of a call that combines any number of elements, without the cycles of each element.
    call: f64,
}

/// Bytes that the DMA of a cluster copies in a cycle within its memory: 1 KiB in 64 (Flare §6.3).
pub const COPIED_PER_CYCLE: u64 = 16;

impl Prices {
    /// The types that have handlers.
    pub const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::I32, DType::I16, DType::I8];

    /// The prices of a type; `None` if it has no handlers.
    pub fn new(code: Code, dtype: DType) -> Option<Prices> {
        let name = Prices::TYPES.contains(&dtype).then(|| dtype.to_string())?;
        let variant = if code == Code::C { "plain" } else { "xpulp" };
        let mut by_storage = [Steps::default(); Storage::ALL.len()];
        for line in COUNTED.lines().skip(1) {
            let [handler, storage, element, step, elements, cycles, _] = line.split(',').collect::<Vec<_>>()[..] else {
                continue;
            };
            let storage_index = Storage::ALL.iter().position(|known| known.name() == storage);
            let at = STEPS.iter().position(|known| *known == step);
            if let (Some(storage_index), Some(at), true) =
                (storage_index, at, element == name && handler.ends_with(variant))
            {
                let number = |text: &str| text.parse::<f64>().expect("the file has numbers");
                by_storage[storage_index].0[at] = number(cycles) / number(elements);
            }
        }
        Some(Prices { by_storage, size: dtype.size() as u64, call: 0.0 })
    }

    /// The prices for a custom operator; `unit` is the size in which its elements are given. They are those of the
    /// dense handlers of words, which copy any bytes, with a call of the operator in place of their additions.
    ///
    /// # Panics
    /// If the file has no handlers of words.
    pub fn of_operator(code: Code, unit: u64, element: u64, cycles: OperatorCycles) -> Prices {
        let words = Prices::new(code, DType::I32).expect("words have handlers");
        let mut by_storage = words.by_storage;
        for storage in [Storage::Single, Storage::Multi, Storage::Tree] {
            let steps = &mut by_storage[storage as usize];
            steps.set("copy", steps.of("copy") * unit as f64 / words.size as f64);
            steps.set("combine", cycles.per_element * unit as f64 / element as f64);
        }
        Prices { by_storage, size: unit, call: cycles.per_call }
    }

    /// The steps of one handler.
    pub fn steps(&self, storage: Storage) -> &Steps {
        &self.by_storage[storage as usize]
    }

    /// Cycles until a handler has what it needs.
    pub fn begin(&self, needs: Needs) -> f64 {
        self.steps(Storage::of(needs)).of("begin")
    }

    /// The costs of a call with this buffer of its block, in units of which a cycle has `cycle`.
    pub fn called(&self, needs: Needs, buffer: u32, work: &Work, cycle: u64) -> Called {
        let storage = Storage::of(needs);
        let steps = self.steps(storage);
        let cost = |count: u64, step: &str| (count as f64 * steps.of(step) * cycle as f64).round() as u64;
        let call = (self.call * cycle as f64).round() as u64;
        let combine = |count: u64| cost(count, "combine") + if count > 0 { call } else { 0 };
        let elements = work.copied + work.combined;
        let pairs = work.hit + work.inserted + work.spilled;
        let emitted = Spent::on(Kind::Send, cost(work.emitted, "send"));
        let mut called = Called {
            counts: needs != Needs::Nothing && elements + pairs > 0,
            completes: work.completed > 0,
            buffer_bytes: elements * self.size,
            end: emitted,
            ..Called::default()
        };
        match storage {
            Storage::Single => {
                let spent = Spent::on(Kind::Copy, cost(work.copied, "copy"));
                called.combine = spent.and(Kind::Combine, combine(work.combined));
                called.copy = called.combine;
            }
            Storage::Multi => {
                // The handler tried the buffers before this one.
                let tried = Spent::on(Kind::Start, cost(buffer.into(), "try"));
                called.copy = tried.and(Kind::Copy, cost(elements, "copy"));
                called.combine = tried.and(Kind::Combine, combine(elements));
                called.merge = Spent::on(Kind::Merge, cost(1, "merge") + combine(elements));
            }
            Storage::Tree => {
                let copied = (elements * self.size).div_ceil(COPIED_PER_CYCLE) * cycle;
                called.copy = Spent::on(Kind::Copy, copied);
                called.merge = Spent::on(Kind::Merge, cost(1, "level") + combine(elements));
            }
            Storage::Hash | Storage::Array => {
                let spent = Spent::on(Kind::Combine, cost(work.hit, "hit"));
                let spent = spent.and(Kind::Insert, cost(work.inserted, "insert"));
                called.combine = spent.and(Kind::Spill, cost(work.spilled, "spill"));
                called.copy = called.combine;
                let closing = cost(work.completed, "end") + cost(work.closed.saturating_sub(work.completed), "forget");
                let scanned = cost(work.scanned_empty, "scan_zero") + cost(work.scanned_full, "scan_value");
                called.end = emitted.and(Kind::Send, cost(work.unfilled, "move")).and(Kind::Scan, closing + scanned);
            }
        }
        called
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_prices_for_every_handler_of_every_type_that_has_any() {
        for code in [Code::C, Code::Xpulp] {
            for dtype in Prices::TYPES {
                let prices = Prices::new(code, dtype).unwrap();
                for storage in Storage::ALL {
                    assert!(prices.steps(storage).of("begin") > 0.0, "{code:?} {dtype} {storage:?}");
                }
            }
            assert_eq!(Prices::new(code, DType::F64), None);
        }
    }

    #[test]
    fn a_packet_of_words_costs_what_the_file_says() {
        let prices = Prices::new(Code::Xpulp, DType::I32).unwrap();
        let work = Work { combined: 256, ..Work::default() };
        let called = prices.called(Needs::Buffer(1), 0, &work, 1);
        assert_eq!((called.combine.total(), called.counts, called.completes), (1024, true, false));
    }
}
