//! Canary's evaluation (De Sensi et al., 2023): its experiments, on the fat trees of its simulations, and the memory that a
//! switch needs by the paper's formulas (§3.2.2 and §4.2).

#[cfg(test)]
mod tests;

use serde::Deserialize;
use tributary_sim::config::{Bytes, DataRate, Duration};

use crate::paper::{Paper, embedded, read};
use crate::{Context, Experiment, Findings, ReproduceError};

/// Canary's files, and the kinds of experiments that only they have.
pub static PAPER: Paper = Paper {
    bases: embedded! {
        "canary-base"
    },
    files: embedded! {
        "canary-fig2"
        "canary-fig6"
        "canary-fig7a"
        "canary-fig7b"
        "canary-fig8"
        "canary-fig9"
        "canary-fig10"
        "canary-fig11"
        "canary-windows"
        "canary-collisions"
        "canary-timeouts"
        "canary-s322"
        "canary-s42"
    },
    kinds: &[("descriptors", read::<Descriptors>)],
};

/// A switch and its network.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptors {
    /// `b`: the rate at which one allreduce sends through the switch.
    pub rate: DataRate,
    /// `d`: hops of the longest path.
    pub diameter: u32,
    /// `l`: the delay of a hop.
    pub hop: Duration,
    /// `t`: how long a switch waits.
    pub timeout: Duration,
    /// `r`: how long the leader takes to answer.
    pub leader: Duration,
    /// `p`: ports of the switch.
    pub ports: u32,
    /// `s`: shards of its children bitmap.
    pub shards: u32,
    /// How many descriptors the switch has.
    pub descriptors: u32,
    /// Bytes on the wire of one packet, which takes one descriptor.
    pub packet: Bytes,
}

impl Experiment for Descriptors {
    /// Findings `memory` (KiB of one allreduce), `allreduces` (how many the descriptors hold), and `groups` (entries of
    /// the multicast table).
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.shards == 0 || self.ports / self.shards > 32 {
            return Err(ReproduceError::Bad("a shard of the children bitmap has 1 to 32 ports".into()));
        }
        let seconds = 2.0 * f64::from(self.diameter) * (self.hop.0 + self.timeout.0).as_secs_f64();
        let lifetime = seconds + self.leader.0.as_secs_f64();
        let bytes = self.rate.0.0 as f64 / 8.0 * lifetime;
        let mut findings = Findings::default();
        findings.value("memory", bytes / 1024.0);
        let cause = format!("{bytes:.0} bytes are {:.1} KiB: the paper's KiB are thousands of bytes", bytes / 1024.0);
        findings.cause("memory", cause);
        let descriptors = bytes / self.packet.0 as f64;
        findings.value("allreduces", (f64::from(self.descriptors) / descriptors).floor());
        findings.value("groups", f64::from(self.shards) * 2f64.powi((self.ports / self.shards) as i32));
        findings.note(format!(
            "A descriptor lives for 2d(l + t) + r = {:.1} us, in which {bytes:.0} bytes come in at full rate.",
            1e6 * lifetime
        ));
        Ok(findings)
    }
}
