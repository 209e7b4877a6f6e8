//! `--calibrate`: how long this machine's processors are busy for a packet and for a byte, as the real driver sends and
//! receives them.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use toml::{Table, Value};
use tributary_net::pool_size::{elements_in, packet_bytes};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire::IPV4_AND_UDP_LEN;

use crate::cluster::job::{self, Data};
use crate::cluster::{Cluster, Hosts, Interrupt, JobRun};
use crate::failure::Failure;
use crate::program::Program;

/// Elements of short packets; long ones fill 1,500 bytes.
const SHORT: u16 = 32;
/// Elements of each tensor: thousands of packets of either length.
const TENSOR: usize = 300_000;
/// Collectives of each run, whose processor time counts together.
const ITERS: u32 = 3;
/// Runs of each length. The cheapest counts: other programs only make packets dearer.
const RUNS: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a packet on a link beside its UDP payload, as in the simulator: preamble, gap, Ethernet, IPv4 and UDP.
const FRAMING: usize = 66;

/// What a packet costs the processor of a host that sends or receives it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HostCosts {
    /// Each packet.
    pub packet_seconds: f64,
    /// Each byte of it on the link.
    pub byte_seconds: f64,
}

impl HostCosts {
    /// Two ranks on this machine sum tensors in long and in short packets.
    pub fn measure(program: &Program, interrupt: &Interrupt) -> Result<HostCosts, Failure> {
        let protocol =
            job::protocols().find(|protocol| protocol.sums_in_network()).expect("some protocol needs a switch");
        let lengths = [elements_in(protocol, 1500 - IPV4_AND_UDP_LEN), SHORT];
        let bar = ProgressBar::new((RUNS * lengths.len()) as u64);
        bar.set_style(
            ProgressStyle::with_template("{bar:30} {pos}/{len} runs: costs of packets").expect("a fixed template"),
        );
        let mut cluster = Cluster::open(program, Hosts::Loopback, 1, interrupt)?;
        let mut cheapest = [f64::INFINITY; 2];
        for _ in 0..RUNS {
            for (elements, cheapest) in lengths.iter().zip(&mut cheapest) {
                *cheapest = seconds_of_packet(&mut cluster, protocol, *elements)?.min(*cheapest);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        cluster.close()?;
        let bytes = lengths.map(|elements| (packet_bytes(protocol, elements) + FRAMING) as f64);
        Ok(HostCosts::through((bytes[0], cheapest[0]), (bytes[1], cheapest[1])))
    }

    /// The line through two measurements of bytes and seconds. Noise makes no cost negative.
    fn through((long, of_long): (f64, f64), (short, of_short): (f64, f64)) -> HostCosts {
        let byte_seconds = ((of_long - of_short) / (long - short)).max(0.0);
        HostCosts { packet_seconds: (of_short - byte_seconds * short).max(0.0), byte_seconds }
    }

    /// [hosts] of an experiment.
    pub fn table(&self) -> Table {
        let time = |seconds: f64| Value::from(Span::from_secs_f64(seconds).to_text());
        let keys = [("per_packet", self.packet_seconds), ("per_byte", self.byte_seconds)];
        keys.into_iter().map(|(key, seconds)| (key.to_string(), time(seconds))).collect()
    }

    /// The costs as a sentence.
    pub fn text(&self) -> String {
        format!(
            "hosts like this one: a packet takes {:.0} ns of a processor, and {:.3} ns for each of its bytes",
            1e9 * self.packet_seconds,
            1e9 * self.byte_seconds
        )
    }
}

/// Processor time of the ranks for each packet that one of them sends or receives.
fn seconds_of_packet(cluster: &mut Cluster, protocol: &'static Protocol, elements: u16) -> Result<f64, Failure> {
    let reports = cluster.allreduce(&JobRun {
        protocol,
        first_host: 0,
        flags: vec!["--elements-per-packet".into(), elements.to_string()],
        data: Data::MadeUp { world_size: 2, elements: TENSOR },
        outputs: Vec::new(),
        iters: ITERS,
        timeout: TIMEOUT,
    })?;
    let busy: f64 = reports.iter().map(|report| report.cpu_seconds).sum();
    // A packet that is sent again has no answer of its own.
    let packets: u64 = reports.iter().map(|report| 2 * report.packets_sent - report.retransmissions).sum();
    Ok(busy / packets as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_the_line_through_two_measurements_and_never_negative() {
        let HostCosts { packet_seconds, byte_seconds } = HostCosts::through((1500.0, 1.0e-6), (500.0, 0.6e-6));
        assert!((byte_seconds - 0.4e-9).abs() < 1e-15 && (packet_seconds - 0.4e-6).abs() < 1e-12);
        let noisy = HostCosts::through((1500.0, 0.5e-6), (500.0, 0.6e-6));
        assert_eq!(noisy, HostCosts { packet_seconds: 0.6e-6, byte_seconds: 0.0 });
        assert_eq!(noisy.table()["per_packet"].as_str(), Some("600 ns"));
    }
}
