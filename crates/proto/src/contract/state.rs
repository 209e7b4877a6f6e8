//! The states of machines, for explorers: a machine can be copied as it is, and its state can be hashed.
//!
//! A machine's state is everything that its behaviour can depend on. Counters that are only reported do not belong to
//! it (`exclude_from_state!`). A machine's configuration never changes, so its id is hashed instead. A [`Time`] or a
//! [`Span`] is hashed with a mark ([`TimeMark`]), so that an explorer can tell times from other numbers and keep only
//! what matters to it, such as their order.

use std::hash::{Hash, Hasher};

use crate::contract::config::{HostConfig, JobConfig};
use crate::contract::drop_reason::DropCounters;
use crate::contract::host::{Host, HostStats};
use crate::contract::switch::{SharedSwitch, Switch};
use crate::contract::tensor::Tensor;
use crate::contract::time::{Span, Time};

/// A host's machine whose states can be explored.
pub trait HostState {
    /// The same machine in the same state.
    ///
    /// # Panics
    /// If the machine holds a tensor that cannot be copied: see [`Tensor::fork`].
    fn fork(&self) -> Box<dyn Host>;
    /// Feeds all that the machine may act on to a hasher.
    fn hash_state(&self, hasher: &mut dyn Hasher);
}

/// A switch's machine whose states can be explored.
pub trait SwitchState {
    /// The same machine in the same state.
    fn fork(&self) -> Box<dyn Switch>;
    /// Feeds all that the machine may act on to a hasher.
    fn hash_state(&self, hasher: &mut dyn Hasher);
}

/// A machine that jobs share and whose states can be explored.
pub trait SharedSwitchState {
    /// The same machine in the same state.
    fn fork(&self) -> Box<dyn SharedSwitch>;
    /// Feeds all that the machine may act on to a hasher.
    fn hash_state(&self, hasher: &mut dyn Hasher);
}

impl<T: Host + Clone + Hash + 'static> HostState for T {
    fn fork(&self) -> Box<dyn Host> {
        Box::new(self.clone())
    }
    fn hash_state(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

impl<T: Switch + Clone + Hash + 'static> SwitchState for T {
    fn fork(&self) -> Box<dyn Switch> {
        Box::new(self.clone())
    }
    fn hash_state(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

impl<T: SharedSwitch + Clone + Hash + 'static> SharedSwitchState for T {
    fn fork(&self) -> Box<dyn SharedSwitch> {
        Box::new(self.clone())
    }
    fn hash_state(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

/// # Panics
/// If the tensor cannot be copied: only an explorer copies machines, and its tensors can be copied.
impl Clone for Box<dyn Tensor> {
    fn clone(&self) -> Box<dyn Tensor> {
        self.fork().expect("a machine that is explored holds tensors that can be copied")
    }
}

impl Hash for dyn Tensor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.spec().hash(state);
        self.hash_state(state);
    }
}

/// How times and spans reach a hasher: as one number of 128 bits, whose upper half says which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeMark {
    /// A [`Time`].
    Time(Time),
    /// A [`Span`].
    Span(Span),
}

impl TimeMark {
    const TIME: u64 = 0x5469_6d65_9d1c_03b7;
    const SPAN: u64 = 0x5370_616e_6a85_e14d;

    /// Reads a number of 128 bits that a hasher was fed, if the number is a time or a span.
    pub fn read(number: u128) -> Option<TimeMark> {
        match (number >> 64) as u64 {
            TimeMark::TIME => Some(TimeMark::Time(Time(number as u64))),
            TimeMark::SPAN => Some(TimeMark::Span(Span(number as u64))),
            _ => None,
        }
    }
}

impl Hash for Time {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from(TimeMark::TIME) << 64 | u128::from(self.0));
    }
}

impl Hash for Span {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from(TimeMark::SPAN) << 64 | u128::from(self.0));
    }
}

/// A job's configuration never changes, so its id stands for it.
impl Hash for JobConfig {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.job.hash(state);
    }
}

/// A host's configuration never changes, so job, rank and server stand for it.
impl Hash for HostConfig {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.job.job, self.rank, self.serves).hash(state);
    }
}

/// Leaves counters, which a machine only reports, out of the state of the machines that hold them.
macro_rules! exclude_from_state {
    ($($name:ty),+ $(,)?) => {$(
        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, _state: &mut H) {}
        }
    )+};
}
pub(crate) use exclude_from_state;

exclude_from_state!(HostStats, DropCounters);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Numbers(Vec<u128>);

    impl Hasher for Numbers {
        fn finish(&self) -> u64 {
            0
        }
        fn write(&mut self, _bytes: &[u8]) {}
        fn write_u128(&mut self, number: u128) {
            self.0.push(number);
        }
    }

    #[test]
    fn times_spans_and_numbers_are_distinguished() {
        let mut numbers = Numbers::default();
        (Time(7), Span(7), 7u64, 7u128).hash(&mut numbers);
        let read: Vec<_> = numbers.0.into_iter().map(TimeMark::read).collect();
        assert_eq!(read, [Some(TimeMark::Time(Time(7))), Some(TimeMark::Span(Span(7))), None]);
    }
}
