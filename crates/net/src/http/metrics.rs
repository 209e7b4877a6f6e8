//! `GET /metrics`: the switch's state as Prometheus reads it. Per-job series carry name and id, because a name may stand
//! for a new job while an old one of that name still ends.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::status::{
    FabricStatus, JobStatus, MetricNumber, MetricStatus, PortStatus, ShardStatus, SharedStatus, SwitchStatus,
};

/// The exposition text of one moment.
pub fn text(status: SwitchStatus) -> String {
    let mut registry = Registry::with_prefix("tributary");
    registry.register_collector(Box::new(Snapshot(status)));
    let mut exposition = String::new();
    // Writing to a string does not fail.
    text::encode(&mut exposition, &registry).expect("a string takes everything");
    exposition
}

#[derive(Debug)]
struct Snapshot(SwitchStatus);

/// The labels of one series.
type Labels = Vec<(&'static str, String)>;

/// A family of one series for each `T`: its name, its help, and where the value is.
type FamilyOf<T, N> = (&'static str, &'static str, fn(&T) -> N);

/// Writes the families of one scrape.
struct Scrape<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Scrape<'_, '_> {
    fn gauge(&mut self, name: &str, help: &str, series: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        let series = series.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.family(name, help, MetricType::Gauge, series)
    }

    fn counter(&mut self, name: &str, help: &str, series: impl IntoIterator<Item = (Labels, u64)>) -> fmt::Result {
        let series = series.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.family(name, help, MetricType::Counter, series)
    }

    fn family<M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        series: impl Iterator<Item = (Labels, M)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, metric) in series {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn one<T>(value: T) -> [(Labels, T); 1] {
    [(Labels::new(), value)]
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut scrape = Scrape(&mut encoder);
        let switch = &self.0.switch;
        let version = vec![("version", switch.version.clone())];
        scrape.gauge("build", "The program's version, as a label.", [(version, 1.0)])?;
        scrape.gauge("uptime_seconds", "Time since the switch started.", one(switch.uptime_s))?;
        scrape.gauge("memory_bytes", "Memory for all jobs.", one(switch.memory_bytes as f64))?;
        scrape.gauge("memory_used_bytes", "Memory that jobs hold.", one(switch.memory_used_bytes as f64))?;
        scrape.gauge("jobs", "Jobs, those that form included.", one(self.0.jobs.len() as f64))?;
        let strangers = switch.strangers.iter().map(|(reason, &count)| (vec![("reason", reason.clone())], count));
        scrape.counter("strangers", "Packets that belonged to no job.", strangers)?;
        let servers = ["present", "left", "lost"].map(|state| {
            let count = switch.servers.iter().filter(|server| server.state == state).count();
            (vec![("state", state.to_owned())], count as f64)
        });
        scrape.gauge("servers", "Servers that have offered themselves by state.", servers)?;
        shards(&mut scrape, &switch.shards)?;
        if let Some(part) = &switch.fabric {
            fabric(&mut scrape, part)?;
        }
        shared(&mut scrape, &switch.shared)?;
        jobs(&mut scrape, &self.0.jobs)
    }
}

fn shards(scrape: &mut Scrape<'_, '_>, shards: &[ShardStatus]) -> fmt::Result {
    let labels = |shard: &ShardStatus| vec![("shard", shard.shard.to_string())];
    let counters: [FamilyOf<ShardStatus, u64>; 7] = [
        ("received_packets", "Packets received.", |shard| shard.rx_packets),
        ("received_bytes", "UDP payload bytes received.", |shard| shard.rx_bytes),
        ("sent_packets", "Packets sent.", |shard| shard.tx_packets),
        ("sent_bytes", "UDP payload bytes sent.", |shard| shard.tx_bytes),
        ("receive_overflows", "Packets lost to a full receive buffer.", |shard| shard.rx_overflows),
        ("send_failures", "Packets that could not be sent.", |shard| shard.tx_failures),
        ("unroutable", "Packets that led to no port.", |shard| shard.unroutable),
    ];
    for (name, help, value) in counters {
        scrape.counter(name, help, shards.iter().map(|shard| (labels(shard), value(shard))))?;
    }
    let up = shards.iter().map(|shard| (labels(shard), if shard.alive { 1.0 } else { 0.0 }));
    scrape.gauge("shard_up", "1 while the shard's thread runs.", up)
}

/// A switch's part in a fabric: its ports.
fn fabric(scrape: &mut Scrape<'_, '_>, part: &FabricStatus) -> fmt::Result {
    let labels = |port: &PortStatus| vec![("port", port.port.to_string()), ("peer", port.peer.clone())];
    let up = part.ports.iter().map(|port| (labels(port), if port.up { 1.0 } else { 0.0 }));
    scrape.gauge("port_up", "1 while the switch at the other end is heard; hosts count as there.", up)?;
    let queued = part.ports.iter().map(|port| (labels(port), port.queued_bytes as f64));
    scrape.gauge("port_queued_bytes", "Bytes that wait in the port's queue, as on the wire.", queued)?;
    let counters: [FamilyOf<PortStatus, u64>; 6] = [
        ("port_sent_packets", "Packets that left the port.", |port| port.tx_packets),
        ("port_sent_bytes", "UDP payload bytes that left the port.", |port| port.tx_bytes),
        ("port_drops", "Packets that did not fit the port's queue.", |port| port.tx_drops),
        ("port_marks", "Packets that were marked (ECN).", |port| port.tx_marks),
        ("port_received_packets", "Packets that came in by the port.", |port| port.rx_packets),
        ("port_received_bytes", "UDP payload bytes that came in by the port.", |port| port.rx_bytes),
    ];
    for (name, help, value) in counters {
        scrape.counter(name, help, part.ports.iter().map(|port| (labels(port), value(port))))?;
    }
    Ok(())
}

/// What jobs share, protocol by protocol: how much of it is held, and the protocol's own figures.
fn shared(scrape: &mut Scrape<'_, '_>, shared: &[SharedStatus]) -> fmt::Result {
    let gauges: [FamilyOf<SharedStatus, f64>; 4] = [
        ("shared_slots", "Slots that a protocol's jobs share.", |part| f64::from(part.slots)),
        ("shared_slots_held", "Those that some job holds.", |part| f64::from(part.slots_held)),
        ("shared_slots_peak", "The most that were held at once.", |part| f64::from(part.slots_peak)),
        ("shared_memory_bytes", "Bytes of what a protocol's jobs share.", |part| part.bytes as f64),
    ];
    for (name, help, value) in gauges {
        let series = shared.iter().map(|part| (vec![("protocol", part.protocol.clone())], value(part)));
        scrape.gauge(name, help, series)?;
    }
    let own =
        shared.iter().flat_map(|part| part.metrics.iter().map(|metric| (part.protocol.clone(), Labels::new(), metric)));
    protocols_own(scrape, own)
}

/// Figures of protocols by the names that the protocols give them, a family for each name.
fn protocols_own<'a>(
    scrape: &mut Scrape<'_, '_>,
    metrics: impl Iterator<Item = (String, Labels, &'a MetricStatus)>,
) -> fmt::Result {
    let mut families: BTreeMap<String, Vec<(Labels, &MetricStatus)>> = BTreeMap::new();
    for (prefix, labels, metric) in metrics {
        families.entry(format!("{prefix}_{}", metric.name)).or_default().push((labels, metric));
    }
    for (name, series) in families {
        let help = &series[0].1.help;
        let counts = series.iter().filter_map(|(labels, metric)| match metric.value {
            MetricNumber::Counter(count) => Some((labels.clone(), count)),
            MetricNumber::Gauge(_) => None,
        });
        let gauges = series.iter().filter_map(|(labels, metric)| match metric.value {
            MetricNumber::Gauge(value) => Some((labels.clone(), value)),
            MetricNumber::Counter(_) => None,
        });
        match series[0].1.value {
            MetricNumber::Counter(_) => scrape.counter(&name, help, counts)?,
            MetricNumber::Gauge(_) => scrape.gauge(&name, help, gauges)?,
        }
    }
    Ok(())
}

fn job_labels(job: &JobStatus) -> Labels {
    vec![("job", job.name.clone()), ("id", job.id.map_or(String::new(), |id| id.to_string()))]
}

fn with(mut labels: Labels, name: &'static str, value: &str) -> Labels {
    labels.push((name, value.to_owned()));
    labels
}

fn jobs(scrape: &mut Scrape<'_, '_>, jobs: &[JobStatus]) -> fmt::Result {
    let counters: [FamilyOf<JobStatus, u64>; 4] = [
        ("job_packets", "Packets of the job's members.", |job| job.packets),
        ("job_goodput_bytes", "Bytes of tensor summed.", |job| job.goodput_bytes),
        ("job_blocks", "Sums completed.", |job| job.blocks),
        ("job_contributions", "Contributions added.", |job| job.contributions),
    ];
    for (name, help, value) in counters {
        scrape.counter(name, help, jobs.iter().map(|job| (job_labels(job), value(job))))?;
    }
    let gauges: [FamilyOf<JobStatus, f64>; 6] = [
        ("job_world", "Ranks of the job when complete.", |job| f64::from(job.world)),
        ("job_slots", "Slots of the job.", |job| f64::from(job.slots)),
        ("job_slots_waiting", "Slots with a sum that is not complete.", |job| f64::from(job.slots_waiting)),
        ("job_memory_bytes", "Memory that the job holds.", |job| job.memory_bytes as f64),
        ("job_missing", "Ranks that have not come or fell silent.", |job| job.missing.len() as f64),
        ("job_waiting_for", "Ranks that some sum waits for.", |job| job.waiting_for.len() as f64),
    ];
    for (name, help, value) in gauges {
        scrape.gauge(name, help, jobs.iter().map(|job| (job_labels(job), value(job))))?;
    }
    let members = jobs.iter().flat_map(|job| {
        ["present", "left", "lost"].map(|state| {
            let count = job.members.iter().filter(|member| member.state == state).count();
            (with(job_labels(job), "state", state), count as f64)
        })
    });
    scrape.gauge("job_members", "Workers here by state.", members)?;
    let switches = jobs.iter().flat_map(|job| {
        ["present", "left", "lost"].map(|state| {
            let count = job.switches.iter().filter(|switch| switch.state == state).count();
            (with(job_labels(job), "state", state), count as f64)
        })
    });
    scrape.gauge("job_switches_below", "Switches below by state.", switches)?;
    let servers = jobs.iter().flat_map(|job| {
        ["present", "left", "lost"].map(|state| {
            let count = job.servers.iter().filter(|server| server.state == state).count();
            (with(job_labels(job), "state", state), count as f64)
        })
    });
    scrape.gauge("job_servers", "Servers of the job by state, where they are processes of their own.", servers)?;
    let above = jobs.iter().filter_map(|job| {
        let above = job.above.as_ref()?;
        Some((job_labels(job), if above.state == "present" { 1.0 } else { 0.0 }))
    });
    scrape.gauge("job_switch_above_up", "1 while the switch above is heard.", above)?;
    let states = jobs.iter().map(|job| (with(job_labels(job), "state", &job.state), 1.0));
    scrape.gauge("job_state", "The job's state, as a label.", states)?;
    let drops = jobs
        .iter()
        .flat_map(|job| job.drops.iter().map(|(reason, &count)| (with(job_labels(job), "reason", reason), count)));
    scrape.counter("job_drops", "Packets with the job's id that were of no use.", drops)?;
    let own = jobs.iter().flat_map(|job| {
        let prefix = format!("{}_job", job.protocol);
        job.metrics.iter().map(move |metric| (prefix.clone(), job_labels(job), metric))
    });
    protocols_own(scrape, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, help: &str, value: MetricNumber) -> MetricStatus {
        MetricStatus { name: name.into(), help: help.into(), value }
    }

    fn job(name: &str, id: u16, losses: u64) -> JobStatus {
        let status = serde_json::json!({
            "name": name, "id": id, "state": "running", "protocol": "pigeon", "age_s": 1.0, "world": 2, "members": [],
            "switches": [], "above": null, "missing": [], "slots": 8, "slots_waiting": 0, "waiting_for": [],
            "elements_per_packet": 64, "memory_bytes": 0, "packets": 0, "packets_per_s": 0.0, "blocks": 0,
            "contributions": 0, "goodput_bytes": 0, "goodput_gbps": 0.0, "ate_per_s": 0.0, "drops": {},
        });
        let metrics = vec![metric("losses", "Feathers lost.", MetricNumber::Counter(losses))];
        JobStatus { metrics, ..serde_json::from_value(status).unwrap() }
    }

    #[test]
    fn figures_of_a_protocol_have_its_name_and_those_of_jobs_one_family_with_their_labels() {
        let mut registry = Registry::with_prefix("tributary");
        let jobs = vec![job("a", 1, 3), job("b", 2, 4)];
        let wait = metric("wait_seconds", "How long a bird rests.", MetricNumber::Gauge(0.5));
        let losses = metric("losses", "Feathers lost.", MetricNumber::Counter(7));
        let part = SharedStatus {
            protocol: "pigeon".into(),
            slots: 16,
            slots_held: 5,
            slots_peak: 9,
            bytes: 4_096,
            metrics: vec![wait, losses],
        };
        registry.register_collector(Box::new(Figures(jobs, vec![part])));
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        for line in [
            "# HELP tributary_pigeon_losses Feathers lost.\n# TYPE tributary_pigeon_losses counter\n\
             tributary_pigeon_losses_total{} 7\n",
            "# HELP tributary_pigeon_wait_seconds How long a bird rests.\n# TYPE tributary_pigeon_wait_seconds gauge\n\
             tributary_pigeon_wait_seconds{} 0.5\n",
            "# TYPE tributary_pigeon_job_losses counter\ntributary_pigeon_job_losses_total{job=\"a\",id=\"1\"} 3\n\
             tributary_pigeon_job_losses_total{job=\"b\",id=\"2\"} 4\n",
            "tributary_shared_slots_held{protocol=\"pigeon\"} 5",
            "tributary_shared_slots_peak{protocol=\"pigeon\"} 9",
        ] {
            assert!(text.contains(line), "{line}\nin\n{text}");
        }
    }

    /// Jobs and what they share, without a switch around them.
    #[derive(Debug)]
    struct Figures(Vec<JobStatus>, Vec<SharedStatus>);

    impl Collector for Figures {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let mut scrape = Scrape(&mut encoder);
            jobs(&mut scrape, &self.0)?;
            shared(&mut scrape, &self.1)
        }
    }
}
