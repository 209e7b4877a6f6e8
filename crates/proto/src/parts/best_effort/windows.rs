//! How far a worker may go: what protocols of the family decide for themselves.

use std::hash::{Hash, Hasher};

use crate::contract::time::{Span, Time};

/// What an acknowledgement says: of a gradient, or, where there are none, its block's result.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// Which transmission it is for; they are numbered in the order of sending.
    pub transmission: u64,
    /// The number of the next one.
    pub next: u64,
    /// The gradient met a long queue, or its sum did.
    pub marked: bool,
    /// How far this worker and the others are.
    pub progress: Progress,
}

/// How far ranks are beyond the last result, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// This one: the paper's `p_l`.
    pub own: f64,
    /// All of them on average: the paper's `p_avg`.
    pub average: f64,
}

/// Windows whose state can be copied and hashed, as their worker's can.
pub trait WindowsState {
    /// The same windows.
    fn fork(&self) -> Box<dyn Windows>;
    /// Feeds them to a hasher.
    fn hash_state(&self, hasher: &mut dyn Hasher);
}

impl<T: Windows + Clone + Hash + 'static> WindowsState for T {
    fn fork(&self) -> Box<dyn Windows> {
        Box::new(self.clone())
    }
    fn hash_state(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

impl Clone for Box<dyn Windows> {
    fn clone(&self) -> Box<dyn Windows> {
        // Not the box's own: a reference to a box is no window.
        WindowsState::fork(&**self)
    }
}

impl Hash for dyn Windows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_state(state);
    }
}

/// A worker's windows.
pub trait Windows: WindowsState + Send {
    /// Packets that may be without any acknowledgement: CWD.
    fn packets(&self) -> u64;
    /// Blocks beyond the last result that may be sent: AWD.
    fn ahead(&self) -> u64;
    /// A gradient was acknowledged.
    fn on_ack(&mut self, ack: &Ack);
    /// The result of a gradient that was acknowledged before met a long queue.
    fn on_mark(&mut self);
    /// A result has come; `short` if it says that memory is. A round trip lasts so long.
    fn on_result(&mut self, now: Time, short: bool, round_trip: Span);
    /// A transmission was lost; `next` is the next one's number.
    fn on_loss(&mut self, transmission: u64, next: u64);
    /// Nothing was heard for a timeout.
    fn on_silence(&mut self);
}
