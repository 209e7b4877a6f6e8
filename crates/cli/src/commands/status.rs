//! `tributary status`: the state of a switch and its jobs.

pub mod clients;
pub mod fabric;
pub mod levels;
#[cfg(test)]
pub mod testing;
pub mod trees;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tributary_net::client;
use tributary_net::status::LagStatus;
use tributary_net::status::{
    FabricStatus, JobServerStatus, JobStatus, MetricNumber, MetricStatus, OperatorStatus, ServerStatus, ShardStatus,
    SharedStatus, SwitchInfo, SwitchStatus,
};

use crate::failure::Failure;
use crate::flags::{parse_switch, resolve};
use crate::output::{self, Table, duration, list};

const EXAMPLES: &str = "\
Examples:
  tributary status --switch 10.0.0.1
  tributary status --switch 10.0.0.1 --ended
  tributary status --switch 10.0.0.1 --tree      all racks, or the whole fabric, from any switch
  watch tributary status --switch 10.0.0.1
  tributary status --switch 10.0.0.1 --json | jq '.jobs[] | {name, state, missing, waiting_for}'

MISSING are ranks that have not come, or fell silent without a word. A job that stands still
WAITS FOR the ranks whose contributions to some block have not arrived. Rates are of the last
second or so. Static trees through a fabric are drawn below the table: the switch on top, then
switches and hosts in the order in which they are added up.";

/// The flags of `tributary status`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The switch; port 17777 where none is given
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: String,
    /// Show the jobs that ended in the last hour instead: whose they were, how they ended, and why
    #[arg(long)]
    pub ended: bool,
    /// Show all switches that this one belongs to, each with its jobs and rates: a tree (--parent) or a fabric
    #[arg(long, conflicts_with = "ended")]
    pub tree: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Asks the switch and prints its answer.
pub fn run(args: Args) -> Result<(), Failure> {
    let switch = resolve(&args.switch)?;
    if args.ended {
        let ended = client::ended(switch)?;
        match args.json {
            true => output::json(&ended)?,
            false => output::line(&clients::ended_jobs(&ended.ended))?,
        }
        return Ok(());
    }
    if args.tree {
        return all_switches(switch, args.json);
    }
    let status = client::status(switch)?;
    match args.json {
        true => output::json(&status)?,
        false => output::line(&text(&status))?,
    }
    Ok(())
}

/// Prints the fabric or the tree that a switch belongs to.
fn all_switches(switch: SocketAddr, json: bool) -> Result<(), Failure> {
    if let Some(fabric) = fabric::of(&client::status(switch)?, client::status)? {
        match json {
            true => output::json(&fabric)?,
            false => output::line(&fabric.draw().join("\n"))?,
        }
        return Ok(());
    }
    let tree = levels::of(switch, client::status, client::status_of_child)?;
    match json {
        true => output::json(&tree)?,
        false => output::line(&levels::draw(&tree).join("\n"))?,
    }
    Ok(())
}

fn text(status: &SwitchStatus) -> String {
    let mut lines = about_switch(&status.switch);
    lines.extend(clients::about_acts(&status.switch));
    lines.extend(status.switch.fabric.iter().flat_map(about_fabric));
    lines.extend(fabric::at_controller(status));
    // What has given way to other jobs has only counted.
    lines.extend(status.switch.shared.iter().filter(|shared| shared.bytes > 0).map(about_shared));
    lines.push(String::new());
    if status.jobs.is_empty() {
        lines.push("no jobs".to_string());
        lines.extend(clients::lines(&status.switch.clients));
        return lines.join("\n");
    }
    lines.push(jobs(&status.jobs));
    lines.extend(clients::lines(&status.switch.clients));
    lines.extend(status.jobs.iter().flat_map(levels));
    lines.extend(status.jobs.iter().flat_map(servers));
    lines.extend(status.jobs.iter().filter(|job| !job.operators.is_empty()).map(operators));
    lines.extend(status.jobs.iter().filter_map(slowest));
    lines.extend(status.jobs.iter().filter_map(|job| job.operation.as_ref()?.who_lacks(&job.name)));
    lines.extend(status.jobs.iter().filter_map(|job| Some(job.large_sums.as_ref()?.line(&job.name))));
    for job in &status.jobs {
        lines.extend(trees::draw(job));
        lines.extend(job.broken.iter().map(|why| format!("{} CANNOT GO ON: {why}", job.name)));
    }
    let drops = status.jobs.iter().filter(|job| !job.drops.is_empty());
    let drops: Vec<String> = drops.map(|job| format!("dropped of {}: {}", job.name, counts(&job.drops))).collect();
    let own = status.jobs.iter().map(|job| (job, figures(&job.metrics))).filter(|(_, own)| !own.is_empty());
    let own: Vec<String> = own.map(|(job, own)| format!("{} of {}: {own}", job.protocol, job.name)).collect();
    if !(drops.is_empty() && own.is_empty()) {
        lines.push(String::new());
        lines.extend(own);
        lines.extend(drops);
    }
    lines.join("\n")
}

fn about_switch(switch: &SwitchInfo) -> Vec<String> {
    let sum = |figure: fn(&ShardStatus) -> f64| switch.shards.iter().map(figure).sum::<f64>();
    let shards =
        if switch.shards.len() == 1 { "1 shard".to_string() } else { format!("{} shards", switch.shards.len()) };
    let mut lines = vec![
        format!("switch {}, tributary {}, up {}", switch.listen, switch.version, duration(switch.uptime_s)),
        format!(
            "{shards}, {:.1} of {} MiB held by jobs; in {:.2} Gbit/s ({:.0} packets/s), out {:.2} Gbit/s",
            mib(switch.memory_used_bytes),
            switch.memory_bytes >> 20,
            sum(|shard| shard.rx_gbps),
            sum(|shard| shard.rx_packets_per_s),
            sum(|shard| shard.tx_gbps),
        ),
    ];
    if let Some(parent) = switch.parent {
        let down = switch.parent_failure.as_ref().map(|why| format!(", which IS DOWN: {why}")).unwrap_or_default();
        lines.push(format!("below the switch at {parent}{down}"));
    }
    lines.extend(switch.servers.iter().map(server));
    if !switch.rejected_packets.is_empty() {
        lines.push(format!("packets of no job: {}", counts(&switch.rejected_packets)));
    }
    for shard in &switch.shards {
        if !shard.alive {
            lines.push(format!("shard {} at {} HAS ENDED: restart the switch", shard.shard, shard.udp));
        }
        if shard.rx_overflows > 0 {
            lines.push(format!(
                "shard {}: {} packets lost in a receive buffer of {} KiB: sysctl -w net.core.rmem_max=16777216",
                shard.shard,
                shard.rx_overflows,
                shard.receive_buffer_bytes >> 10
            ));
        }
        if shard.tx_failures > 0 {
            lines.push(format!("shard {}: {} packets could not be sent", shard.shard, shard.tx_failures));
        }
    }
    lines
}

/// The job's own operators, and the first digits of their hashes.
fn operators(job: &JobStatus) -> String {
    let of = |operator: &OperatorStatus| format!("{} ({:.8})", operator.name, operator.sha256);
    format!("operators of {}: {}", job.name, job.operators.iter().map(of).collect::<Vec<_>>().join(", "))
}

/// A server that has offered itself.
fn server(server: &ServerStatus) -> String {
    let jobs = match server.jobs.as_slice() {
        [] => "serves no job".to_string(),
        jobs => format!("serves {}", jobs.join(", ")),
    };
    format!("server {} is {}, {jobs}, last seen {:.1} s ago", server.addr, server.state, server.last_seen_s_ago)
}

/// The memory that jobs share at a switch, and their protocol's counts.
fn about_shared(shared: &SharedStatus) -> String {
    let SharedStatus { protocol, slots, slots_in_use, slots_peak, bytes, metrics } = shared;
    let own = figures(metrics);
    let own = if own.is_empty() { own } else { format!("; {own}") };
    format!("{protocol}: {slots_in_use} of {slots} slots in use (peak {slots_peak}), {:.1} MiB{own}", mib(*bytes))
}

/// A protocol's own figures, without those that are zero.
fn figures(metrics: &[MetricStatus]) -> String {
    let text = |metric: &MetricStatus| {
        let value = match metric.value {
            MetricNumber::Counter(0) => return None,
            MetricNumber::Counter(count) => count.to_string(),
            MetricNumber::Gauge(value) => value.to_string(),
        };
        Some(format!("{} {value}", metric.name.replace('_', " ")))
    };
    metrics.iter().filter_map(text).collect::<Vec<_>>().join(", ")
}

/// The lines for a switch of a fabric: its ports.
fn about_fabric(fabric: &FabricStatus) -> Vec<String> {
    let mut lines = vec![format!("{} of a fabric whose jobs are formed at {}", fabric.node, fabric.controller)];
    if !fabric.ready {
        lines.push(format!("it does not know the running jobs yet: {} has not synced it", fabric.controller));
    }
    let mut table = Table::new([
        "PORT",
        "TO",
        "UP",
        "QUEUED KIB",
        "PEAK KIB",
        "OUT",
        "DROPPED",
        "MARKED",
        "IN",
        "PAUSED IT",
        "PAUSED BY IT",
    ]);
    for port in &fabric.ports {
        let kib = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0);
        table.row([
            port.port.to_string(),
            port.peer.clone(),
            if port.up { "yes" } else { "no" }.to_string(),
            kib(port.queued_bytes),
            kib(port.peak_queued_bytes),
            port.tx_packets.to_string(),
            port.tx_drops.to_string(),
            port.tx_marks.to_string(),
            port.rx_packets.to_string(),
            port.pauses_given.to_string(),
            port.pauses_taken.to_string(),
        ]);
    }
    lines.extend([String::new(), table.render()]);
    lines
}

fn jobs(jobs: &[JobStatus]) -> String {
    let mut table = Table::new([
        "JOB",
        "STATE",
        "PROTOCOL",
        "RANKS",
        "MISSING",
        "WAITS FOR",
        "SLOTS",
        "ELEMENTS",
        "MIB",
        "GBIT/S",
        "MATE/S",
        "PACKETS",
        "AGE",
    ]);
    for job in jobs {
        let below = job.switches.iter().filter(|switch| switch.state == "present").map(|switch| switch.ranks.len());
        let here = job.members.iter().filter(|member| member.state == "present").count() + below.sum::<usize>();
        table.row([
            job.name.clone(),
            job.state.clone(),
            job.protocol.clone(),
            format!("{here}/{}", job.world_size),
            list(&job.missing),
            list(&job.waiting_for),
            job.slots.to_string(),
            job.elements_per_packet.to_string(),
            format!("{:.1}", mib(job.memory_bytes)),
            format!("{:.2}", job.goodput_gbps),
            format!("{:.1}", job.ate_per_s / 1e6),
            job.packets.to_string(),
            duration(job.age_s),
        ]);
    }
    table.render()
}

/// Which switches are above and below, for jobs on several switches.
fn levels(job: &JobStatus) -> Vec<String> {
    let last_seen = |ago: Option<f64>| ago.map(|ago| format!(", last seen {ago:.1} s ago")).unwrap_or_default();
    let children = job.switches.iter().map(|switch| {
        let addr = switch.addr.map_or("?".to_string(), |addr| addr.to_string());
        let (ranks, seen) = (list(&switch.ranks), last_seen(switch.last_seen_s_ago));
        format!("{}: ranks {ranks} are below the switch at {addr}: {}{seen}", job.name, switch.state)
    });
    let parent = job.parent.iter().map(|parent| {
        format!("{}: the switch above is {}{}", job.name, parent.state, last_seen(parent.last_seen_s_ago))
    });
    let here: Vec<u16> = job.members.iter().map(|member| member.rank).collect();
    let mut lines: Vec<String> = children.chain(parent).collect();
    if !lines.is_empty() && !here.is_empty() {
        lines.insert(0, format!("{}: ranks {} are here", job.name, list(&here)));
    }
    lines
}

/// The servers of jobs whose servers are processes of their own.
fn servers(job: &JobStatus) -> Vec<String> {
    let line = |server: &JobServerStatus| {
        format!("{}: server {} is at {}: {}", job.name, server.server, server.addr, server.state)
    };
    job.servers.iter().map(line).collect()
}

/// The rank for which a job waits because it is slow.
fn slowest(job: &JobStatus) -> Option<String> {
    let LagStatus { rank, blocks } = job.lag?;
    Some(format!("{} waits for rank {rank}, {} blocks behind", job.name, grouped(blocks)))
}

/// A whole number with a comma before every three digits.
fn grouped(number: u32) -> String {
    let digits = number.to_string();
    let comma = |(at, digit): (usize, char)| {
        let is_first_of_three = at > 0 && (digits.len() - at).is_multiple_of(3);
        is_first_of_three.then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(comma).collect()
}

fn counts(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, value: MetricNumber) -> MetricStatus {
        MetricStatus { name: name.into(), help: String::new(), value }
    }

    #[test]
    fn commas_separate_thousands() {
        let texts =
            [(0, "0"), (12, "12"), (999, "999"), (4_210, "4,210"), (100_000, "100,000"), (1 << 31, "2,147,483,648")];
        assert!(texts.iter().all(|&(number, text)| grouped(number) == text), "{texts:?}");
    }

    #[test]
    fn what_a_protocol_counts_is_shown_by_its_own_names_and_what_never_happened_is_not() {
        let metrics = vec![
            metric("wait_seconds", MetricNumber::Gauge(0.5)),
            metric("lost_feathers", MetricNumber::Counter(3)),
            metric("crashes", MetricNumber::Counter(0)),
        ];
        let shared = SharedStatus {
            protocol: "pigeon".into(),
            slots: 8,
            slots_in_use: 2,
            slots_peak: 5,
            bytes: 3 << 20,
            metrics,
        };
        assert_eq!(
            about_shared(&shared),
            "pigeon: 2 of 8 slots in use (peak 5), 3.0 MiB; wait seconds 0.5, lost feathers 3"
        );
    }
}
