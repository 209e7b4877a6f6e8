//! Controllers whose windows are the same on all ranks.
//!
//! A PANAMA worker sends the next packet of a tree as soon as its window allows it, and the slowest rank paces all. So
//! the windows of all ranks should be equal, which holds if a window is a function of the sequence of results: all
//! ranks see the same results in the same order, but each at its own time. (Marks on the way down and lost results are
//! seen by one rank alone; within the capacity that results name, windows that differ harm nobody.) [`RankSynchronous`]
//! therefore gets neither a clock nor a round trip: what a controller shall know of delay, switches must measure and
//! write into results, which changes the wire. A controller that has a clock is a [`super::Controller`], and does not
//! compile here:
//!
//! ```compile_fail
//! use tributary_proto::congestion::{RankSynchronous, Swift};
//!
//! fn for_panama(_: impl RankSynchronous) {}
//! fn choose(swift: Swift) {
//!     for_panama(swift); // error: the trait bound `Swift: RankSynchronous` is not satisfied
//! }
//! ```
//!
//! Nor can it be made one, since a result says nothing about time:
//!
//! ```compile_fail
//! # use tributary_proto::congestion::ResultAck;
//! fn delay_of(result: ResultAck) -> tributary_proto::contract::time::Span {
//!     result.rtt // error: no field `rtt`
//! }
//! ```
//!
//! What follows results alone does:
//!
//! ```
//! use tributary_proto::congestion::{RankSynchronous, ResultClocked};
//!
//! fn for_panama(_: impl RankSynchronous) {}
//! for_panama(ResultClocked::new(64));
//! ```

mod figure_five;
pub(crate) mod result_clocked;

use std::fmt;
use std::hash::{Hash, Hasher};

use super::algorithms::names;
use super::boxed_controllers;

/// The packets of a new window, and the least that marks leave of a window: a smaller window would never grow again.
pub const LEAST: f64 = 2.0;

/// Every algorithm that can be chosen by name.
pub const ALGORITHMS: &[RankSynchronousAlgorithm] =
    &[result_clocked::ALGORITHM, WHOLE_CAPACITY, figure_five::ALGORITHM];

/// The names of [`ALGORITHMS`], for the values of an option.
pub const NAMES: &[&str] = &names!(ALGORITHMS);

/// An algorithm as a value.
#[derive(Clone, Copy)]
pub struct RankSynchronousAlgorithm {
    /// Its name in options and files.
    pub name: &'static str,
    /// It follows marks, so packets ask for them.
    pub follows_marks: bool,
    /// Makes the controller of one tree, whose accelerators have buffers for this many packets.
    pub make: fn(u16) -> Box<dyn RankSynchronous>,
}

impl RankSynchronousAlgorithm {
    /// The algorithm with this name.
    pub fn named(name: &str) -> Option<&'static RankSynchronousAlgorithm> {
        ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
    }
}

impl PartialEq for RankSynchronousAlgorithm {
    fn eq(&self, other: &RankSynchronousAlgorithm) -> bool {
        self.name == other.name
    }
}

impl Eq for RankSynchronousAlgorithm {}

impl Hash for RankSynchronousAlgorithm {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for RankSynchronousAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What a result says: an implicit acknowledgement (PANAMA, §4.2.2), the same for all ranks, except for marks on
/// the way down.
#[derive(Clone, Copy, Debug)]
pub struct ResultAck {
    /// The packet's number in its tree.
    pub vid: u64,
    /// A packet of the sum, or the result, met a long queue.
    pub is_marked: bool,
    /// How many packets the accelerators have buffers for (`wnd_cap`).
    pub capacity: u16,
}

/// A window that is a function of the sequence of results.
pub trait RankSynchronous: RankSynchronousState + fmt::Debug + Send {
    /// How many packets may be without a result, unrounded.
    fn size(&self) -> f64;
    /// The same in whole packets, at least 1.
    fn packets(&self) -> u64 {
        self.size() as u64
    }
    /// A result has come.
    fn on_result(&mut self, result: ResultAck);
    /// The tree begins again at its first VID, so no network was filled: the window is as new, on all ranks.
    fn begin(&mut self);
    /// The tree goes back to a VID whose result was lost, on all ranks.
    fn on_rewind(&mut self);
}

boxed_controllers!(RankSynchronous, RankSynchronousState);

/// As much as accelerators have buffers for, whatever is marked: §7's baseline.
const WHOLE_CAPACITY: RankSynchronousAlgorithm = RankSynchronousAlgorithm {
    name: "off",
    follows_marks: false,
    make: |capacity| Box::new(WholeCapacity::new(capacity)),
};

/// A window as large as the capacity that the last result names.
#[derive(Clone, Debug, Hash)]
struct WholeCapacity {
    packets: u16,
    capacity: u16,
}

impl WholeCapacity {
    /// The window of a tree that has sent nothing. It is small, since no result has said yet what the capacity is.
    fn new(capacity: u16) -> WholeCapacity {
        let capacity = capacity.max(1);
        WholeCapacity { packets: capacity.min(LEAST as u16), capacity }
    }
}

impl RankSynchronous for WholeCapacity {
    fn size(&self) -> f64 {
        self.packets.into()
    }

    fn on_result(&mut self, result: ResultAck) {
        self.capacity = result.capacity.max(1);
        self.packets = self.capacity;
    }

    fn begin(&mut self) {
        *self = WholeCapacity::new(self.capacity);
    }

    fn on_rewind(&mut self) {
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_congestion_control_the_window_is_the_capacity() {
        let result = |vid, capacity| ResultAck { vid, is_marked: vid == 0, capacity };
        let mut window = WholeCapacity::new(40);
        assert_eq!(window.packets(), 2, "no result has said yet what the capacity is");
        window.on_result(result(0, 30));
        assert_eq!(window.packets(), 30);
        window.on_rewind();
        assert_eq!(window.packets(), 2, "the capacity may be smaller in the new epoch");
        window.on_result(result(1, 20));
        assert_eq!(window.packets(), 20);
    }

    #[test]
    fn an_algorithm_is_found_by_its_name() {
        for algorithm in ALGORITHMS {
            assert_eq!(RankSynchronousAlgorithm::named(algorithm.name).map(|found| found.name), Some(algorithm.name));
            assert_eq!((algorithm.make)(1).packets(), 1);
        }
    }
}
