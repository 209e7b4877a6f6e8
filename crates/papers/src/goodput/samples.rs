//! Measurements seed by seed. The same seed draws the same hosts and roots for every line, so that ratios are taken
//! seed by seed too.

use std::collections::BTreeMap;

use crate::Findings;
use crate::finding::Finding;

/// Numbers by key, one for each seed.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<String, Vec<f64>>);

impl Samples {
    pub fn put(&mut self, key: impl Into<String>, values: Vec<f64>) {
        self.0.insert(key.into(), values);
    }

    /// The median over the seeds.
    pub fn median(&self, key: &str) -> Option<f64> {
        self.0.get(key).map(|values| Finding::over("seeds", values).median)
    }

    /// Adds a value that follows from two numbers of each seed; false if one of them is unknown.
    pub fn combine(&mut self, key: &str, of: [&str; 2], f: impl Fn(f64, f64) -> f64) -> bool {
        let [Some(a), Some(b)] = of.map(|key| self.0.get(key)) else { return false };
        let values = a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect();
        self.put(key, values);
        true
    }

    /// Medians and ranges.
    pub fn tell(&self, findings: &mut Findings) {
        for (key, values) in &self.0 {
            findings.value(key, Finding::over("seeds", values));
        }
    }
}
