//! A constant window: what is under way does not depend on the network. For baselines, and for networks that are
//! reserved.

use super::{Ack, Algorithm, Controller, Feedback, Loss};
use crate::contract::time::Time;

/// The algorithm as a value.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "fixed",
    feedback: Feedback::EndToEnd,
    make: |settings| Box::new(Fixed { packets: settings.limits.initial.into() }),
};

/// The controller of one sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fixed {
    /// The window.
    pub packets: u64,
}

impl Controller for Fixed {
    fn window(&self) -> u64 {
        self.packets
    }
    fn on_ack(&mut self, _: &Ack) {}
    fn on_loss(&mut self, _: Loss) -> bool {
        false
    }
    fn on_timeout(&mut self, _: Time) {}
}
