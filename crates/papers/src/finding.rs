//! The findings of an experiment.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub use tributary_sim::{Figure, Series};

/// A measured number: one value, or the median and the range of several, over seeds, workers or readings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The least value.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The greatest value.
    pub high: f64,
    /// What the range is over; `None` for a single value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<&'static str>,
}

impl Finding {
    /// Median and range of some numbers, of which there is at least one.
    pub fn over(over: &'static str, values: &[f64]) -> Finding {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] };
        let over = (sorted.len() > 1).then_some(over);
        Finding { low: sorted[0], median, high: sorted[sorted.len() - 1], over }
    }
}

/// The things that ranges are over.
const RANGES: [&str; 5] = ["seeds", "workers", "readings", "models", "profiles"];

/// A finding that was kept in a file.
#[derive(Deserialize)]
struct KeptFinding {
    low: f64,
    median: f64,
    high: f64,
    over: Option<String>,
}

impl<'de> Deserialize<'de> for Finding {
    /// A range over something unknown comes from another program: then the experiment is run again.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Finding, D::Error> {
        let KeptFinding { low, median, high, over } = KeptFinding::deserialize(deserializer)?;
        let known = |word: String| RANGES.into_iter().find(|known| *known == word).ok_or(word);
        let over = over.map(known).transpose();
        let over = over.map_err(|word| serde::de::Error::custom(format!("\"{word}\" is not a range")))?;
        Ok(Finding { low, median, high, over })
    }
}

impl From<f64> for Finding {
    fn from(value: f64) -> Finding {
        Finding { low: value, median: value, high: value, over: None }
    }
}

/// All findings of an experiment, by the keys that its file uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// The numbers.
    pub values: BTreeMap<String, Finding>,
    /// Possible causes, known to the run, why a number differs from the published one.
    pub causes: BTreeMap<String, String>,
    /// Notes about all of them for readers.
    pub notes: Vec<String>,
    /// The pictures' data.
    pub figures: Vec<Figure>,
}

impl Findings {
    /// Adds a number.
    pub fn value(&mut self, key: impl Into<String>, value: impl Into<Finding>) {
        self.values.insert(key.into(), value.into());
    }

    /// Adds the possible cause of a difference.
    pub fn cause(&mut self, key: impl Into<String>, cause: impl Into<String>) {
        self.causes.insert(key.into(), cause.into());
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

/// The mean of some numbers, at least one.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_median_whatever_the_order() {
        let seeds = Finding::over("seeds", &[3.0, 1.0, 10.0]);
        assert_eq!((seeds.low, seeds.median, seeds.high, seeds.over), (1.0, 3.0, 10.0, Some("seeds")));
        assert_eq!(Finding::over("seeds", &[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Finding::over("seeds", &[4.0]), Finding::from(4.0));
    }
}
