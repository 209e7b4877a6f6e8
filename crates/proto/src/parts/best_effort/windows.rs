//! How far a worker may go: each protocol of the family decides this for itself.

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

/// Which marks and losses a window has answered. What was sent before an answer tells of the window before it: a queue stays
/// long until those who filled it have made way, and its marks ask for no second cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Answers {
    /// The first transmission after the last answer.
    after: u64,
    /// One of those was acknowledged: results tell again how the path is.
    is_heard: bool,
    /// A result was marked since, which the next acknowledgement answers.
    was_marked: bool,
}

impl Answers {
    /// True if what was sent then tells of the window as it is.
    pub fn covers(&self, transmission: u64) -> bool {
        transmission >= self.after
    }

    /// True if an acknowledgement asks for an answer to a mark, its own or a result's before it.
    pub fn asks(&mut self, ack: &Ack) -> bool {
        let covers = self.covers(ack.transmission);
        self.is_heard |= covers;
        covers && ack.marked || self.was_marked
    }

    /// A result was marked whose gradient was acknowledged before.
    pub fn on_mark(&mut self) {
        self.was_marked |= self.is_heard;
    }

    /// The window makes way; `next` is the number of the next transmission.
    pub fn answer(&mut self, next: u64) {
        *self = Answers { after: next, is_heard: false, was_marked: false };
    }
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
