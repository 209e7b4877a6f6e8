//! SwitchML §7: how many workers can be served by switches in levels, if each pipeline sums up to `p` ports.

use serde::Deserialize;

use crate::{Context, Experiment, Findings, ReproduceError};

/// The switches.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Levels {
    /// Ports of a switch.
    pub ports: u32,
    /// Pipelines of a switch.
    pub pipelines: u32,
    /// The most levels that are computed.
    pub levels: u32,
}

impl Experiment for Levels {
    /// Findings `levels-1`, `levels-2` ...
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.pipelines == 0 || self.ports < self.pipelines * 2 {
            return Err(ReproduceError::Bad("a pipeline needs at least two ports".into()));
        }
        let mut findings = Findings::default();
        let (p, d) = (self.ports_per_pipeline(), self.downstream());
        let u = self.upstream(d);
        for level in 1..=self.levels {
            findings.value(format!("levels-{level}"), self.workers(level) as f64);
        }
        findings.note(format!(
            "Each pipeline sums p = {p} ports. A switch below the root has d = {d} ports downwards and u = ceil(d/p) = {u} \
             upwards, one for each pipeline (d + u <= {}). The root must bring everything together in one pipeline, so \
             {p} partial sums reach it, u = {u} of them from each switch below.",
            self.ports
        ));
        Ok(findings)
    }
}

impl Levels {
    fn ports_per_pipeline(&self) -> u32 {
        self.ports / self.pipelines
    }

    fn upstream(&self, downstream: u32) -> u32 {
        downstream.div_ceil(self.ports_per_pipeline())
    }

    /// The most ports downwards that leave enough ports upwards.
    fn downstream(&self) -> u32 {
        (1..self.ports).rev().find(|&d| d + self.upstream(d) <= self.ports).unwrap_or(0)
    }

    /// How many workers so many levels serve.
    fn workers(&self, levels: u32) -> u64 {
        let (p, d) = (u64::from(self.ports_per_pipeline()), u64::from(self.downstream()));
        let u = u64::from(self.upstream(self.downstream()));
        match levels {
            0 => 0,
            1 => p,
            _ => p / u * (d / u).saturating_pow(levels - 2) * d,
        }
    }
}
