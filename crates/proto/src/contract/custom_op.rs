//! Custom operators (Flare §3, its feature F1): the operators that a job's members bring, as machines and drivers see
//! them.
//!
//! This crate does not run an operator's code: a [`CustomOp`] describes it, and a machine combines vectors with an
//! [`Instance`]. Elements are opaque: each has a fixed number of bytes, which are neither swapped nor read. A
//! collective with such an operator is one of bytes ([`DType::U8`](tributary_numeric::DType::U8)) with
//! [`ReduceOp::Custom`], whose number is the operator's index in the job's option
//! [`OptionSpec::CUSTOM_OPS`](super::options::OptionSpec::CUSTOM_OPS). That option names operators by the hash of their
//! code, so that members agree on operators as on any other option.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tributary_numeric::ReduceOp;

/// The SHA-256 of an operator's module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomOpHash(pub [u8; 32]);

impl CustomOpHash {
    /// Reads a hash written as 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<CustomOpHash> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(CustomOpHash(hash))
    }

    /// The hash's first eight digits: enough for people.
    pub fn short(&self) -> String {
        self.to_string()[..8].to_owned()
    }
}

impl fmt::Display for CustomOpHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CustomOpHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// What an operator's results depend on, besides the ranks' elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrderDependence {
    /// Nothing more: the operator commutes and associates.
    Nothing,
    /// Which elements are combined first: the operator commutes.
    Arrangement,
    /// Also which operand is on the left: ranks must stand in their order.
    RankOrder,
}

/// An operator that was checked and may be used.
pub trait CustomOp: Send + Sync {
    /// The hash of the operator's code.
    fn hash(&self) -> CustomOpHash;
    /// The operator's name, for people.
    fn name(&self) -> &str;
    /// Bytes of an element: 1 to [`CustomOps::MOST_ELEMENT_BYTES`].
    fn element_size(&self) -> usize;
    /// What the operator's results depend on.
    fn order_dependence(&self) -> OrderDependence;
    /// The module's code, to send to processes that need the operator.
    fn module(&self) -> &[u8];
    /// Bytes that an instance takes.
    fn memory_bytes(&self, capacity: Capacity) -> usize;
    /// Makes an instance of this capacity.
    fn instance(&self, capacity: Capacity) -> Box<dyn Instance>;
}

/// The capacity of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
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

/// An operator's instance in one machine. Its accumulators lie in the memory in which it computes; all memory is
/// allocated when the instance is made. A vector that is combined with an accumulator must be as long as the vector
/// that was stored there. After a fault the accumulators are undefined.
pub trait Instance: Send {
    /// `accumulator <- vector`.
    fn store(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `accumulator <- accumulator o vector`.
    fn add(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `accumulator <- vector o accumulator`.
    fn add_left(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault>;
    /// `left <- left o right`: both are accumulators of `bytes` bytes.
    fn merge(&mut self, left: usize, right: usize, bytes: usize) -> Result<(), Fault>;
    /// The first bytes of an accumulator.
    fn lanes(&self, accumulator: usize, bytes: usize) -> &[u8];
    /// All accumulators. A machine may keep there what it combines without the operator. `None` if the operator could
    /// not be started.
    fn accumulators(&self) -> Option<Accumulators<&[u8]>>;
    /// All accumulators, to write to.
    fn accumulators_mut(&mut self) -> Option<Accumulators<&mut [u8]>>;
    /// Instructions that the instance's calls have taken so far.
    fn instructions(&self) -> u64;
    /// All state that the instance keeps from one call to the next.
    fn state(&self) -> &[u8];
    /// A copy for another machine, with the same values in its accumulators.
    fn fork(&self) -> Box<dyn Instance>;
    /// Bytes that the instance has allocated: as many as [`CustomOp::memory_bytes`] said.
    fn memory_bytes(&self) -> usize;
}

/// An operator has failed, and so has its job. The text is a sentence that names the operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

#[derive(Clone)]
struct Entry {
    hash: CustomOpHash,
    /// `None` until the module was provided.
    operator: Option<Arc<dyn CustomOp>>,
}

/// A job's custom operators, by number. As an option their text is their hashes; two values are equal if the hashes
/// are.
#[derive(Clone, Default)]
pub struct CustomOps(Arc<[Entry]>);

impl CustomOps {
    /// The most bytes that an element may have.
    pub const MOST_ELEMENT_BYTES: usize = 64;

    /// Reads the text that [`CustomOps::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<CustomOps> {
        let hashes = text.split(',').filter(|_| !text.is_empty()).map(CustomOpHash::from_hex);
        let entries = hashes.map(|hash| Some(Entry { hash: hash?, operator: None })).collect::<Option<Vec<_>>>()?;
        (entries.len() <= ReduceOp::MAX_CUSTOM.into()).then(|| CustomOps(entries.into()))
    }

    /// The hashes, with commas between them.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|entry| entry.hash.to_string()).collect::<Vec<_>>().join(",")
    }

    /// The same operators, with the modules among these that belong to them.
    #[must_use]
    pub fn provided(&self, modules: &[Arc<dyn CustomOp>]) -> CustomOps {
        let with = |entry: &Entry| {
            let operator = modules.iter().find(|module| module.hash() == entry.hash).cloned();
            Entry { operator: operator.or_else(|| entry.operator.clone()), ..entry.clone() }
        };
        CustomOps(self.0.iter().map(with).collect())
    }

    /// The first operator whose module was not provided.
    pub fn lacks(&self) -> Option<CustomOpHash> {
        self.0.iter().find(|entry| entry.operator.is_none()).map(|entry| entry.hash)
    }

    /// The operator of this number, if there is one and its module was provided.
    pub fn get(&self, number: u8) -> Option<&dyn CustomOp> {
        self.0.get(usize::from(number))?.operator.as_deref()
    }

    /// The operators whose modules were provided.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn CustomOp>> {
        self.0.iter().filter_map(|entry| entry.operator.as_ref())
    }

    /// The number of operators.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the job has no custom operators.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the largest element, 0 if there is none.
    pub fn largest_element(&self) -> usize {
        self.iter().map(|operator| operator.element_size()).max().unwrap_or(0)
    }

    /// Bytes that one instance of each operator takes.
    pub fn memory_bytes(&self, capacity: Capacity) -> usize {
        self.iter().map(|operator| operator.memory_bytes(capacity) + size_of::<Box<dyn Instance>>()).sum()
    }

    /// One instance of each operator.
    pub fn instances(&self, capacity: Capacity) -> Box<[Box<dyn Instance>]> {
        self.iter().map(|operator| operator.instance(capacity)).collect()
    }
}

impl PartialEq for CustomOps {
    fn eq(&self, other: &CustomOps) -> bool {
        self.0.iter().map(|entry| entry.hash).eq(other.0.iter().map(|entry| entry.hash))
    }
}

impl Eq for CustomOps {}

impl Hash for CustomOps {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|entry| entry.hash.hash(state));
    }
}

impl fmt::Debug for CustomOps {
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
        let both = CustomOps::from_text(&format!("{a},{b}")).unwrap();
        assert_eq!((both.len(), both.to_text()), (2, format!("{a},{b}")));
        assert_eq!(both.lacks().map(|hash| hash.short()), Some("0a0a0a0a".to_owned()));
        assert_eq!(CustomOps::from_text(""), Some(CustomOps::default()));
        for wrong in ["0a", &format!("{a},"), &"0g".repeat(32), &[a.as_str(); 9].join(","), &"é".repeat(32)] {
            assert_eq!(CustomOps::from_text(wrong), None, "{wrong}");
        }
    }
}
