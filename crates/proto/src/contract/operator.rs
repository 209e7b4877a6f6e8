//! Operators that a job's members bring themselves (Flare §3, its feature F1), as machines and drivers see them.
//!
//! An operator's code is none of this crate's affair: [`Operator`] is what is known of it, and an [`Instance`] is what a
//! machine combines vectors with. Elements are opaque here: so many bytes each, which nobody swaps or looks into. A
//! collective of such an operator is one of bytes ([`DType::U8`](tributary_numeric::DType::U8)) with
//! [`ReduceOp::Own`](tributary_numeric::ReduceOp::Own), whose number is the operator's place in the job's option
//! [`Operators::OPTION`]. Operators are named by the hash of their code, so that members agree on them as on any option.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tributary_numeric::ReduceOp;

use crate::contract::options::{Kind, OptionSpec};

/// The SHA-256 of an operator's module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorHash(pub [u8; 32]);

impl OperatorHash {
    /// The hash written as 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<OperatorHash> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(OperatorHash(hash))
    }

    /// Its first eight digits: enough for people.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

impl fmt::Display for OperatorHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for OperatorHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// What an operator's results depend on besides the ranks' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Needs {
    /// Nothing: it commutes and associates.
    Nothing,
    /// On which elements are combined first: it commutes.
    Arrangement,
    /// On which operand is on the left, too: ranks must stand in their order.
    RankOrder,
}

/// An operator that was checked and may be used.
pub trait Operator: Send + Sync {
    /// What it is known by.
    fn hash(&self) -> OperatorHash;
    /// Its name, for people.
    fn name(&self) -> &str;
    /// Bytes of an element: 1 to [`Operators::MOST_ELEMENT_BYTES`].
    fn element_size(&self) -> usize;
    /// What its results depend on.
    fn needs(&self) -> Needs;
    /// The module, for whoever is to have the operator too.
    fn module(&self) -> &[u8];
    /// Bytes that an instance takes.
    fn memory_bytes(&self, room: Room) -> usize;
    /// An instance with this room.
    fn instance(&self, room: Room) -> Box<dyn Instance>;
}

/// What an instance has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a vector, at most.
    pub vector_bytes: usize,
    /// Vectors that it combines others with, numbered from 0.
    pub accumulators: usize,
}

/// Accumulators where they lie, the first at the beginning.
#[derive(Debug)]
pub struct Accumulators<T> {
    /// All of them.
    pub bytes: T,
    /// From one to the next.
    pub stride: usize,
}

/// An operator at work for one machine, with its accumulators, which lie where it computes. All its memory is taken when it is
/// made. A vector that is combined with an accumulator is as long as the one that was stored there; after a fault accumulators mean
/// nothing.
pub trait Instance: Send {
    /// `accumulator <- vector`.
    fn store(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `accumulator <- accumulator o vector`.
    fn add(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `accumulator <- vector o accumulator`.
    fn add_left(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `left <- left o right`, accumulators both, of so many bytes.
    fn merge(&mut self, left: usize, right: usize, bytes: usize) -> Result<(), Fault>;
    /// The first bytes of an accumulator.
    fn lanes(&self, accumulator: usize, bytes: usize) -> &[u8];
    /// All accumulators, each so many bytes behind the one before: a machine may keep there what it combines by itself. None where
    /// the operator could not be started.
    fn accumulators(&self) -> Option<Accumulators<&[u8]>>;
    /// The same, to be written.
    fn accumulators_mut(&mut self) -> Option<Accumulators<&mut [u8]>>;
    /// Instructions that its calls have taken since this was asked last.
    fn take_instructions(&mut self) -> u64;
    /// All that it keeps from one call to the next.
    fn state(&self) -> &[u8];
    /// The same operator at work for another machine, with the same accumulators.
    fn fork(&self) -> Box<dyn Instance>;
    /// Bytes that it has taken: what [`Operator::memory_bytes`] said.
    fn memory_bytes(&self) -> usize;
}

/// An operator has failed, and its job with it: a sentence that names the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

#[derive(Clone)]
struct Entry {
    hash: OperatorHash,
    /// `None` until somebody has brought the module.
    operator: Option<Arc<dyn Operator>>,
}

/// The operators of a job, by number: an option, whose text is their hashes. Two are equal if the hashes are.
#[derive(Clone, Default)]
pub struct Operators(Arc<[Entry]>);

impl Operators {
    /// Bytes of an element, at most.
    pub const MOST_ELEMENT_BYTES: usize = 64;

    /// The option of protocols that combine with their jobs' own operators.
    pub const OPTION: OptionSpec = OptionSpec {
        name: "operators",
        kind: Kind::Operators,
        default: "",
        help: "the job's own operators, as the SHA-256 of their modules",
    };

    /// Reads what [`Operators::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<Operators> {
        let hashes = text.split(',').filter(|_| !text.is_empty()).map(OperatorHash::from_hex);
        let entries = hashes.map(|hash| Some(Entry { hash: hash?, operator: None })).collect::<Option<Vec<_>>>()?;
        (entries.len() <= ReduceOp::MOST_OWN.into()).then(|| Operators(entries.into()))
    }

    /// The hashes, with commas between them.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|entry| entry.hash.to_string()).collect::<Vec<_>>().join(",")
    }

    /// The same operators, where their modules are among these.
    #[must_use]
    pub fn provided(&self, modules: &[Arc<dyn Operator>]) -> Operators {
        let with = |entry: &Entry| {
            let operator = modules.iter().find(|module| module.hash() == entry.hash).cloned();
            Entry { operator: operator.or_else(|| entry.operator.clone()), ..entry.clone() }
        };
        Operators(self.0.iter().map(with).collect())
    }

    /// The first of them whose module nobody has brought.
    pub fn lacks(&self) -> Option<OperatorHash> {
        self.0.iter().find(|entry| entry.operator.is_none()).map(|entry| entry.hash)
    }

    /// The operator of this number, if there is one and its module was brought.
    pub fn get(&self, number: u8) -> Option<&dyn Operator> {
        self.0.get(usize::from(number))?.operator.as_deref()
    }

    /// Those whose modules were brought.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Operator>> {
        self.0.iter().filter_map(|entry| entry.operator.as_ref())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True of a job without own operators.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the largest element, 0 if there is none.
    pub fn largest_element(&self) -> usize {
        self.iter().map(|operator| operator.element_size()).max().unwrap_or(0)
    }

    /// Bytes that an instance of each takes.
    pub fn memory_bytes(&self, room: Room) -> usize {
        self.iter().map(|operator| operator.memory_bytes(room) + size_of::<Box<dyn Instance>>()).sum()
    }

    /// An instance of each.
    pub fn instances(&self, room: Room) -> Box<[Box<dyn Instance>]> {
        self.iter().map(|operator| operator.instance(room)).collect()
    }
}

impl PartialEq for Operators {
    fn eq(&self, other: &Operators) -> bool {
        self.0.iter().map(|entry| entry.hash).eq(other.0.iter().map(|entry| entry.hash))
    }
}

impl Eq for Operators {}

impl Hash for Operators {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|entry| entry.hash.hash(state));
    }
}

impl fmt::Debug for Operators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|entry| entry.hash)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_named_by_their_hashes_and_survive_as_text() {
        let (a, b) = ("0a".repeat(32), "ff".repeat(32));
        let both = Operators::from_text(&format!("{a},{b}")).unwrap();
        assert_eq!((both.len(), both.to_text()), (2, format!("{a},{b}")));
        assert_eq!(both.lacks().map(|hash| hash.short()), Some("0a0a0a0a".to_owned()));
        assert_eq!(Operators::from_text(""), Some(Operators::default()));
        for wrong in ["0a", &format!("{a},"), &"0g".repeat(32), &[a.as_str(); 9].join(","), &"é".repeat(32)] {
            assert_eq!(Operators::from_text(wrong), None, "{wrong}");
        }
    }
}
