//! How far a worker may send ahead: each protocol of the family decides this for itself.

use std::hash::{Hash, Hasher};

use crate::contract::time::{Span, Time};

/// An acknowledgement: of a gradient or, where there are none, by its block's result.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The transmission that it acknowledges; transmissions are numbered in the order of sending.
    pub transmission: u64,
    /// The number of the next transmission.
    pub next: u64,
    /// The gradient or its sum met a long queue.
    pub marked: bool,
    /// How far this worker and the other ranks are.
    pub progress: Progress,
}

/// How far ranks are beyond the last result, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// This rank: the paper's `p_l`.
    pub own: f64,
    /// All ranks on average: the paper's `p_avg`.
    pub average: f64,
}

/// The marks and losses that a window has answered. Packets that were sent before an answer tell about the window
/// before it: a queue stays long until senders that filled it have made way, and its marks ask for no second cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Answers {
    /// The first transmission after the last answer.
    after: u64,
    /// A transmission after the last answer was acknowledged: results tell about the path again.
    is_heard: bool,
    /// A result was marked since then; the next acknowledgement answers the mark.
    was_marked: bool,
}

impl Answers {
    /// True if this transmission tells about the present window.
    pub fn covers(&self, transmission: u64) -> bool {
        transmission >= self.after
    }

    /// True if an acknowledgement asks for an answer to a mark: its own mark, or the mark of a result before it.
    pub fn asks(&mut self, ack: &Ack) -> bool {
        let covers = self.covers(ack.transmission);
        self.is_heard |= covers;
        covers && ack.marked || self.was_marked
    }

    /// A result was marked whose gradient was acknowledged before.
    pub fn on_mark(&mut self) {
        self.was_marked |= self.is_heard;
    }

    /// The window was cut; `next` is the number of the next transmission.
    pub fn answer(&mut self, next: u64) {
        *self = Answers { after: next, is_heard: false, was_marked: false };
    }
}

/// Windows whose state can be copied and hashed, as a worker's state can.
pub trait WindowsState {
    /// A copy of the windows.
    fn fork(&self) -> Box<dyn Windows>;
    /// Feeds the state to a hasher.
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
        // Forks the windows in the box, since a reference to a box is no window.
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
    /// How many packets may be without any acknowledgement: CWD.
    fn packets(&self) -> u64;
    /// How many blocks beyond the last result may be sent: AWD.
    fn ahead(&self) -> u64;
    /// A gradient was acknowledged.
    fn on_ack(&mut self, ack: &Ack);
    /// The result of a gradient that was acknowledged before met a long queue.
    fn on_mark(&mut self);
    /// A result has come; `short` if it says that memory is short. A round trip takes `round_trip`.
    fn on_result(&mut self, now: Time, short: bool, round_trip: Span);
    /// A transmission was lost; `next` is the number of the next one.
    fn on_loss(&mut self, transmission: u64, next: u64);
    /// Nothing was heard for a timeout.
    fn on_silence(&mut self);
    /// A transmission that had counted as lost was acknowledged: the acknowledgement answers what was sent after it
    /// (`was_lost`), or the transmission itself, which was merely late.
    fn on_verdict(&mut self, was_lost: bool);
}
