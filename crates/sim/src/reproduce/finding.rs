//! What an experiment measured.

use std::collections::BTreeMap;

use serde::Serialize;

pub use crate::figure::{Figure, Series};

/// A measured number: one value, or the range that several readings or seeds span.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The least ...
    pub low: f64,
    /// ... and the greatest.
    pub high: f64,
}

impl Finding {
    /// The value nearest to another.
    pub fn nearest(self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }
}

impl From<f64> for Finding {
    fn from(value: f64) -> Finding {
        Finding { low: value, high: value }
    }
}

/// Everything that an experiment measured, by the keys that its file uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The numbers.
    pub values: BTreeMap<String, Finding>,
    /// What the run knows about why a number may differ from what was published.
    pub causes: BTreeMap<String, String>,
    /// What a reader must know about all of them.
    pub notes: Vec<String>,
    /// The pictures' data.
    pub figures: Vec<Figure>,
}

impl Findings {
    /// Adds a number.
    pub fn value(&mut self, key: impl Into<String>, value: impl Into<Finding>) {
        self.values.insert(key.into(), value.into());
    }

    /// Adds what may be the cause if a number differs.
    pub fn cause(&mut self, key: impl Into<String>, cause: impl Into<String>) {
        self.causes.insert(key.into(), cause.into());
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// The mean, the least and the greatest of some numbers; there is at least one.
pub fn spread(values: &[f64]) -> (f64, Finding) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (mean, Finding { low, high })
}
