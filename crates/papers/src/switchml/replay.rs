//! SwitchML Table 2: the speed-up of training, from Table 1's profiles, of in-network communication against a ring's.
//!
//! A profile gives a batch's time `T`, the share `c` of it in which communication is under way, and the share `o` of
//! that which overlaps with computation. A ring moves `r = 2(n-1)/n` times the data of in-network aggregation (§3).

use serde::Deserialize;

use crate::finding::Finding;
use crate::{Context, Experiment, Findings, ReproduceError};

/// The profiles.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Workers of the profile.
    pub workers: u32,
    /// The rows of Table 1, once for each rate.
    pub profiles: Vec<Profile>,
}

/// One row of Table 1 at one rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Findings are named `<model>-<gbit>`.
    pub model: String,
    /// The rate.
    pub gbit: u32,
    /// The gradients' size, 10^6 bytes.
    pub size_mb: f64,
    /// `T`.
    pub batch_ms: f64,
    /// `c`, percent.
    pub comm: f64,
    /// `o`, percent.
    pub overlap: f64,
}

impl Profile {
    fn key(&self) -> String {
        format!("{}-{}", self.model, self.gbit)
    }

    /// `T c` divided by the time in which the gradients pass the link once.
    fn passes(&self) -> f64 {
        let once_ms = self.size_mb * 8.0 / f64::from(self.gbit);
        self.batch_ms * self.comm / 100.0 / once_ms
    }

    /// The speed-up if the profile's communication is in-network and the ring's takes `ring` times as long. It lies
    /// between two values: the additional time overlaps with computation as the profile's does, or none of it does.
    fn speed_up_over_ring(&self, ring: f64) -> Finding {
        let (c, o) = (self.comm / 100.0, self.overlap / 100.0);
        let more = (ring - 1.0) * c;
        Finding::over("readings", &[1.0 + more * (1.0 - o), 1.0 + more])
    }

    /// The other reading, in which the profile's communication is the ring's: the speed-up with the same overlap, and
    /// with communication that takes no time, which no algorithm exceeds.
    fn speed_up_if_ring(&self, ring: f64) -> (f64, f64) {
        let exposed = self.comm / 100.0 * (1.0 - self.overlap / 100.0);
        (1.0 / (1.0 - exposed * (1.0 - 1.0 / ring)), 1.0 / (1.0 - exposed))
    }
}

impl Experiment for Replay {
    /// Findings `<model>-<gbit>`.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        let ring = 2.0 * f64::from(self.workers - 1) / f64::from(self.workers);
        let passes: Vec<f64> = self.profiles.iter().map(Profile::passes).collect();
        for profile in &self.profiles {
            let range = profile.speed_up_over_ring(ring);
            let (same, limit) = profile.speed_up_if_ring(ring);
            findings.value(profile.key(), range);
            findings.cause(
                profile.key(),
                format!(
                    "Table 1's rounded shares allow {:.2} to {:.2}; read as a ring's profile they would give {same:.2} \
                     and, with communication for nothing, {limit:.2}. The paper replays a trace of single all-reduce \
                     calls, which is not published.",
                    range.low, range.high
                ),
            );
        }
        let times = Finding::over("profiles", &passes);
        let slow: Vec<&Profile> = self.profiles.iter().filter(|profile| profile.passes() < 1.4).collect();
        findings.note(format!(
            "What Table 1's communication is: its time is {:.2} to {:.2} times (median {:.2}) what the gradients take \
             once over the link, in {} of {} rows below 1.4. A ring of {} moves them {ring:.2} times, in-network \
             aggregation once; so the profile is read as in-network, and the ring's communication as {ring:.2} times as \
             long.",
            times.low,
            times.high,
            times.median,
            slow.len(),
            passes.len(),
            self.workers
        ));
        let readings: Vec<String> = self
            .profiles
            .iter()
            .map(|profile| {
                let (same, limit) = profile.speed_up_if_ring(ring);
                format!("{} {same:.2} (at most {limit:.2})", profile.key())
            })
            .collect();
        findings.note(format!("Read as a ring's profile instead, Table 1 would give: {}.", readings.join(", ")));
        findings.note(
            "How overlap is treated: the low end hides the ring's additional time behind computation in the profile's \
             share, the high end hides none of it.",
        );
        Ok(findings)
    }
}
