//! Operators that a job's members bring (Flare §3, its feature F1), as machines and drivers see them.
//!
//! This crate does not run an operator's code: an [`Operator`] describes it, and a machine combines vectors with an
//! [`Instance`]. Elements are opaque here: each has so many bytes, which are neither swapped nor read. A collective of
//! such an operator is one of bytes ([`DType::U8`](tributary_numeric::DType::U8)) with
//! [`ReduceOp::Own`](tributary_numeric::ReduceOp::Own), whose number is the operator's place in the job's option
//! [`Operators::OPTION`]. That option names operators by the hash of their code, so that members agree on operators as
//! on any option.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tributary_numeric::ReduceOp;

use crate::contract::options::{Kind, OptionSpec};

/// The SHA-256 of an operator's module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorHash(pub [u8; 32]);

impl OperatorHash {
    /// Reads a hash written as 64 hexadecimal digits.
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

    /// The hash's first eight digits: enough for people.
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

/// What an operator's results depend on, besides the ranks' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Needs {
    /// On nothing more: the operator commutes and associates.
    Nothing,
    /// On which elements are combined first: the operator commutes.
    Arrangement,
    /// Also on which operand is on the left: ranks must stand in their order.
    RankOrder,
}

/// An operator that was checked and may be used.
pub trait Operator: Send + Sync {
    /// The hash of the operator's code.
    fn hash(&self) -> OperatorHash;
    /// The operator's name, for people.
    fn name(&self) -> &str;
    /// Bytes of an element: 1 to [`Operators::MOST_ELEMENT_BYTES`].
    fn element_size(&self) -> usize;
    /// What the operator's results depend on.
    fn needs(&self) -> Needs;
    /// The module, for other machines that need the operator.
    fn module(&self) -> &[u8];
    /// Bytes that an instance takes.
    fn memory_bytes(&self, room: Room) -> usize;
    /// An instance with this room.
    fn instance(&self, room: Room) -> Box<dyn Instance>;
}

/// What an instance has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the longest vector.
    pub vector_bytes: usize,
    /// The number of accumulators. They are numbered from 0.
    pub accumulators: usize,
}

/// Accumulators in memory. The first one is at the beginning.
#[derive(Debug)]
pub struct Accumulators<T> {
    /// The memory of all accumulators.
    pub bytes: T,
    /// Bytes from one accumulator to the next.
    pub stride: usize,
}

/// An operator at work for one machine. Its accumulators lie in the memory in which it computes; all memory is
/// allocated when the instance is made. A vector that is combined with an accumulator must be as long as the vector
/// that was stored there. After a fault, accumulators mean nothing.
pub trait Instance: Send {
    /// `accumulator <- vector`.
    fn store(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `accumulator <- accumulator o vector`.
    fn add(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `accumulator <- vector o accumulator`.
    fn add_left(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `left <- left o right`: both are accumulators, of so many bytes.
    fn merge(&mut self, left: usize, right: usize, bytes: usize) -> Result<(), Fault>;
    /// The first bytes of an accumulator.
    fn lanes(&self, accumulator: usize, bytes: usize) -> &[u8];
    /// All accumulators. A machine may keep there what it combines without the operator. `None` if the operator could
    /// not be started.
    fn accumulators(&self) -> Option<Accumulators<&[u8]>>;
    /// All accumulators, to write to.
    fn accumulators_mut(&mut self) -> Option<Accumulators<&mut [u8]>>;
    /// Instructions that the instance's calls have taken since the last call of this function.
    fn take_instructions(&mut self) -> u64;
    /// All state that the instance keeps from one call to the next.
    fn state(&self) -> &[u8];
    /// A copy for another machine, with the same values in its accumulators.
    fn fork(&self) -> Box<dyn Instance>;
    /// Bytes that the instance has allocated: as many as [`Operator::memory_bytes`] said.
    fn memory_bytes(&self) -> usize;
}

/// An operator has failed, and its job with it. The text is a sentence that names the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

#[derive(Clone)]
struct Entry {
    hash: OperatorHash,
    /// `None` until the module was brought.
    operator: Option<Arc<dyn Operator>>,
}

/// The operators of a job, by number. As an option, their text is their hashes; two values are equal if the hashes are.
#[derive(Clone, Default)]
pub struct Operators(Arc<[Entry]>);

impl Operators {
    /// The most bytes that an element may have.
    pub const MOST_ELEMENT_BYTES: usize = 64;

    /// The option, for protocols that combine with their jobs' own operators.
    pub const OPTION: OptionSpec = OptionSpec {
        name: "operators",
        kind: Kind::Operators,
        default: "",
        help: "the job's own operators, as the SHA-256 of their modules",
    };

    /// Reads the text that [`Operators::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<Operators> {
        let hashes = text.split(',').filter(|_| !text.is_empty()).map(OperatorHash::from_hex);
        let entries = hashes.map(|hash| Some(Entry { hash: hash?, operator: None })).collect::<Option<Vec<_>>>()?;
        (entries.len() <= ReduceOp::MOST_OWN.into()).then(|| Operators(entries.into()))
    }

    /// The hashes, with commas between them.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|entry| entry.hash.to_string()).collect::<Vec<_>>().join(",")
    }

    /// The same operators, with those of these modules that belong to them.
    #[must_use]
    pub fn provided(&self, modules: &[Arc<dyn Operator>]) -> Operators {
        let with = |entry: &Entry| {
            let operator = modules.iter().find(|module| module.hash() == entry.hash).cloned();
            Entry { operator: operator.or_else(|| entry.operator.clone()), ..entry.clone() }
        };
        Operators(self.0.iter().map(with).collect())
    }

    /// The first operator whose module was not brought.
    pub fn lacks(&self) -> Option<OperatorHash> {
        self.0.iter().find(|entry| entry.operator.is_none()).map(|entry| entry.hash)
    }

    /// The operator of this number, if there is one and its module was brought.
    pub fn get(&self, number: u8) -> Option<&dyn Operator> {
        self.0.get(usize::from(number))?.operator.as_deref()
    }

    /// The operators whose modules were brought.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Operator>> {
        self.0.iter().filter_map(|entry| entry.operator.as_ref())
    }

    /// The number of operators.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the job has no operators of its own.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the largest element, 0 if there is none.
    pub fn largest_element(&self) -> usize {
        self.iter().map(|operator| operator.element_size()).max().unwrap_or(0)
    }

    /// Bytes that one instance of each operator takes.
    pub fn memory_bytes(&self, room: Room) -> usize {
        self.iter().map(|operator| operator.memory_bytes(room) + size_of::<Box<dyn Instance>>()).sum()
    }

    /// One instance of each operator.
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
