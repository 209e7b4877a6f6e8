//! SwitchML figures 4 and 5: batches of Table 1's models, with SwitchML on busy hosts and with a ring at its best.
//!
//! A profile gives a batch's time `T`, the share `c` of it with communication under way, and the share `o` of that which
//! overlaps with computation; so a worker computes for `T (1 - c (1 - o))`. A faster GPU divides that. Communication
//! takes what the simulator says of the model's gradients. What of it is hidden lies between two readings.

use serde::Deserialize;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::switchml::PROTOCOL;

use super::rack::{Rack, RackJob};
use super::replay::Profile;
use super::ring;
use crate::finding::{Figure, Finding, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batches {
    /// The rack.
    pub rack: Rack,
    /// Elements in the tensor whose goodput is measured.
    pub elements: u32,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// Ranks, one on each host.
    pub workers: u32,
    /// Link rate.
    pub gbit: u64,
    /// SwitchML's pool.
    pub slots: u16,
    /// What a packet costs a host's cores together, in nanoseconds, under SwitchML; the ring's hosts spend no time.
    pub host_ns: f64,
    /// By how many times GPUs are faster than the profile's.
    pub gpus: Vec<f64>,
    /// The rows of Table 1 at this rate.
    pub profiles: Vec<Profile>,
}

/// Gigabits a second of tensor that allreduces reach.
#[derive(Clone, Copy)]
struct Goodput {
    switchml: f64,
    ring: f64,
}

impl Profile {
    /// The batch's time with communication at a goodput, GPUs that are faster, and one of two readings: as large a share
    /// of communication is hidden as in the profile, or as much time, as far as there is computation.
    fn time_ms(&self, goodput_gbps: f64, faster: f64, as_much_time: bool) -> f64 {
        let (c, o) = (self.comm / 100.0, self.overlap / 100.0);
        let computing = self.batch_ms * (1.0 - c * (1.0 - o)) / faster;
        let communicating = 8.0 * self.size_mb / goodput_gbps;
        let hidden = if as_much_time { self.batch_ms * c * o / faster } else { communicating * o };
        computing + communicating - hidden.min(communicating).min(computing)
    }

    fn speed_up(&self, goodput: Goodput, faster: f64) -> Finding {
        let reading = |as_much_time| {
            let [ours, theirs] = [goodput.switchml, goodput.ring].map(|gbps| self.time_ms(gbps, faster, as_much_time));
            theirs / ours
        };
        Finding::over("readings", &[reading(false), reading(true)])
    }
}

impl Experiment for Batches {
    /// Findings `<model>-<gpu>`, the speed-up over the ring between two readings; `least-<gpu>` and `most-<gpu>`, of all
    /// models, and `most`, of all GPUs too.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let jobs = [self.job(&PROTOCOL, self.host_ns), self.job(ring()?, 0.0)];
        let gbps = context.watch.all(&jobs, |job| {
            let run = job.run(context.watch)?;
            Ok(32e-9 * job.elements_per_second(&run))
        })?;
        let goodput = Goodput { switchml: gbps[0], ring: gbps[1] };
        let mut findings = Findings::default();
        let mut series = Vec::new();
        let mut all: Option<Finding> = None;
        for &faster in &self.gpus {
            let speed_ups: Vec<Finding> =
                self.profiles.iter().map(|profile| profile.speed_up(goodput, faster)).collect();
            for (profile, &speed_up) in self.profiles.iter().zip(&speed_ups) {
                findings.value(format!("{}-{faster}", profile.model), speed_up);
            }
            let of_gpu = |better: fn(f64, f64) -> bool| {
                speed_ups.iter().copied().reduce(|a, b| if better(b.median, a.median) { b } else { a })
            };
            let (Some(least), Some(most)) = (of_gpu(|b, a| b < a), of_gpu(|b, a| b > a)) else {
                return Err(ReproduceError::Bad("a figure of models needs one at least".into()));
            };
            findings.value(format!("least-{faster}"), least);
            findings.value(format!("most-{faster}"), most);
            all = Some(all.filter(|all| all.median >= most.median).unwrap_or(most));
            let points = speed_ups.iter().enumerate().map(|(at, speed_up)| [at as f64, speed_up.median]).collect();
            let ranges = speed_ups.iter().map(|speed_up| [speed_up.low, speed_up.high]).collect();
            series.push(Series { ranges, ..Series::new(format!("GPUs {faster} times as fast"), points) });
        }
        all.into_iter().for_each(|all| findings.value("most", all));
        let names: Vec<&str> = self.profiles.iter().map(|profile| &*profile.model).collect();
        findings.figures.push(Figure {
            title: format!("Speed-up of a batch over the ring, {} workers", self.workers),
            x: names.join(", "),
            y: "times".into(),
            log_x: false,
            series,
            marks: Vec::new(),
        });
        findings.note(format!(
            "SwitchML on busy hosts moves {:.2} Gbit/s of tensor, the ring {:.2}.",
            goodput.switchml, goodput.ring
        ));
        Ok(findings)
    }
}

impl Batches {
    fn job(&self, protocol: &'static Protocol, host_ns: f64) -> RackJob {
        RackJob {
            workers: self.workers,
            elements: self.elements,
            elements_per_packet: self.elements_per_packet,
            slots: self.slots,
            host_ns,
            ..RackJob::ideal(self.rack, self.gbit, protocol)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Profile =
        Profile { model: String::new(), gbit: 100, size_mb: 1250.0, batch_ms: 200.0, comm: 50.0, overlap: 50.0 };

    #[test]
    fn a_batch_at_the_profiles_own_rate_takes_the_profiles_time_in_both_readings() {
        // 1,250 MB at 100 Gbit/s are 100 ms, half of the batch, and half of that is hidden.
        assert_eq!([false, true].map(|as_much_time| HALF.time_ms(100.0, 1.0, as_much_time)), [200.0, 200.0]);
    }

    #[test]
    fn a_slower_network_hides_the_same_share_or_the_same_time() {
        // 200 ms of communication beside 150 ms of computation: 100 ms are hidden, or 50.
        assert_eq!([false, true].map(|as_much_time| HALF.time_ms(50.0, 1.0, as_much_time)), [250.0, 300.0]);
    }

    #[test]
    fn no_more_is_hidden_than_there_is_computation() {
        // 15 ms of computation beside 100 ms of communication.
        assert_eq!([false, true].map(|as_much_time| HALF.time_ms(100.0, 10.0, as_much_time)), [100.0, 110.0]);
    }
}
