//! The samples of a job and a flow that share a cable, and their shares.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::collective::Sample as JobSample;
use crate::commands::lab::traffic::flow::Sample as FlowSample;
use crate::failure::Failure;

/// What Ethernet, IPv4 and UDP add to a packet.
pub const FRAME_BYTES: u64 = 14 + 20 + 8;
/// A full packet of the flow on the wire.
const FLOW_BYTES: u64 = 1_472 + FRAME_BYTES;

/// The samples of both, in order of time.
pub struct Recording {
    job: Vec<JobSample>,
    flow: Vec<FlowSample>,
    /// Bytes of a packet of the job on the wire.
    job_bytes: u64,
}

/// The rate of each over the last half of the time that both ran.
#[derive(Debug, Serialize)]
pub struct Shares {
    pub job_mbps: f64,
    /// The rate divided by half of the cable's rate.
    pub job_share: f64,
    pub flow_mbps: f64,
    pub flow_share: f64,
    /// The flow's rate before the job came, over the last half of that time.
    pub flow_alone_mbps: f64,
}

/// Seconds since 1970, and bytes that were sent until then.
type Sent = (f64, u64);

impl Recording {
    /// Reads the output lines of both.
    pub fn read(job: &[String], flow: &[String], job_bytes: u64) -> Result<Recording, Failure> {
        Ok(Recording { job: samples("rank 0", job)?, flow: samples("the flow", flow)?, job_bytes })
    }

    fn job_sent(&self) -> Vec<Sent> {
        self.job.iter().map(|sample| (sample.at, sample.blocks * self.job_bytes)).collect()
    }

    fn flow_sent(&self) -> Vec<Sent> {
        self.flow.iter().map(|sample| (sample.at, sample.packets * FLOW_BYTES)).collect()
    }

    /// When the flow began, according to its first sample.
    fn start(&self) -> f64 {
        self.flow[0].at
    }

    /// The shares of both.
    pub fn shares(&self, rate_mbps: f64) -> Result<Shares, Failure> {
        let (job, flow) = (self.job_sent(), self.flow_sent());
        let Some(joined) = job.iter().find(|(_, bytes)| *bytes > 0).map(|(at, _)| *at) else {
            return Err(Failure::new("the job has summed nothing"));
        };
        let end = job[job.len() - 1].0.min(flow[flow.len() - 1].0);
        let half = joined + (end - joined) / 2.0;
        let before = self.start() + (joined - self.start()) / 2.0;
        let fair = rate_mbps / 2.0;
        let (job_mbps, flow_mbps) = (mbps(&job, half, end), mbps(&flow, half, end));
        Ok(Shares {
            job_mbps,
            job_share: job_mbps / fair,
            flow_mbps,
            flow_share: flow_mbps / fair,
            flow_alone_mbps: mbps(&flow, before, joined),
        })
    }

    /// Megabits per second over time, for the job and the flow.
    pub fn rates(&self) -> [Vec<[f64; 2]>; 2] {
        [self.job_sent(), self.flow_sent()].map(|sent| {
            let rate = |pair: &[Sent]| [pair[1].0 - self.start(), mbps(pair, pair[0].0, pair[1].0)];
            sent.windows(2).map(rate).collect()
        })
    }

    /// Windows over time, for the job and the flow.
    pub fn windows(&self) -> [Vec<[f64; 2]>; 2] {
        let job = self.job.iter().filter_map(|sample| Some([sample.at - self.start(), sample.window_packets?]));
        let flow = self.flow.iter().map(|sample| [sample.at - self.start(), sample.window_packets as f64]);
        [job.collect(), flow.collect()]
    }
}

/// The lines that are samples. A process also prints other lines, and its last line may be cut.
fn samples<T: DeserializeOwned>(who: &str, lines: &[String]) -> Result<Vec<T>, Failure> {
    let samples: Vec<T> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if samples.len() < 2 { Err(Failure::new(format!("{who} has said nothing of itself"))) } else { Ok(samples) }
}

/// Megabits per second between two times, from the samples that lie between.
fn mbps(sent: &[Sent], from: f64, to: f64) -> f64 {
    let mut between = sent.iter().filter(|(at, _)| (from..=to).contains(at));
    let Some(&(first_at, first)) = between.next() else { return 0.0 };
    let Some(&(last_at, last)) = between.next_back() else { return 0.0 };
    (last - first) as f64 * 8e-6 / (last_at - first_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        // The flow has the whole cable until second 4, then a quarter of it; the job has half of that.
        let flow = (0..=8u32).map(|at| FlowSample {
            at: 100.0 + f64::from(at),
            packets: u64::from(1_000 * at.min(4) + 250 * (at.max(4) - 4)),
            window_packets: 10,
        });
        let job = (4..=8u32).map(|at| JobSample {
            at: 100.0 + f64::from(at),
            blocks: u64::from(1 + 125 * (at - 4)),
            packets_sent: 0,
            retransmissions: 0,
            window_packets: Some(7.0),
        });
        Recording { flow: flow.collect(), job: job.collect(), job_bytes: FLOW_BYTES }
    }

    #[test]
    fn a_share_is_the_rate_of_the_last_half_divided_by_half_the_cable() {
        let shares = recording().shares(10.0).unwrap();
        let near = |is: f64, expected: f64| assert!((is - expected).abs() < 1e-9, "{is} is not {expected}");
        near(shares.flow_alone_mbps, 12.112);
        near(shares.flow_mbps, 3.028);
        near(shares.flow_share, 3.028 / 5.0);
        near(shares.job_mbps, 1.514);
    }

    #[test]
    fn who_has_said_nothing_is_named() {
        let flow: Vec<String> = Vec::new();
        let read = Recording::read(&["{}".to_owned()], &flow, 1).map(|_| ());
        assert!(matches!(read, Err(Failure::Failed(why)) if why.contains("rank 0 has said nothing")));
    }
}
