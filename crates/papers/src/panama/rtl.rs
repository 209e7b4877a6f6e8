//! PANAMA tables 1 and 2 and figure 7 of our own design of the accelerator: what its simulation and synthesis gave.
//!
//! `make rtl` measures, and compares what it measures with the numbers of the experiment's file, which this program has
//! because neither the design nor its tools are part of it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Context, Experiment, Findings, ReproduceError};

/// Numbers by their keys, as `make rtl` prints them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rtl {
    /// What was measured.
    pub measured: BTreeMap<String, f64>,
}

impl Experiment for Rtl {
    /// A finding for each number.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for (key, &value) in &self.measured {
            findings.value(key.as_str(), value);
        }
        Ok(findings)
    }
}
