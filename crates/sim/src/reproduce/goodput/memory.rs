//! What the runs so far found. Figures of one paper share runs (7b shows the links of 7a's), and each is made once.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::measure::Measured;

/// Results by the text of the run's file, which decides them.
#[derive(Default)]
pub struct Memory(Mutex<BTreeMap<String, Measured>>);

impl Memory {
    /// How many runs it holds.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.0.lock().expect("nobody panics while it holds the lock").len()
    }

    pub(super) fn get(&self, file: &str) -> Option<Measured> {
        self.0.lock().expect("nobody panics while it holds the lock").get(file).copied()
    }

    pub(super) fn keep(&self, file: String, measured: Measured) {
        self.0.lock().expect("nobody panics while it holds the lock").insert(file, measured);
    }
}
