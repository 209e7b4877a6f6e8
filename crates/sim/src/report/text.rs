//! The report as text for people.

use std::fmt;

use super::flows::flows_under;
use super::{
    CoresReport, FlowClass, FlowReport, JobReport, LinkGroup, MetricReport, OperatorReport, Report, SamplesReport,
    Stop, TransportReport, TreeReport,
};
use crate::cores::operators::OperatorCycles;
use crate::engine::Data;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all_complete = self.jobs.iter().all(|job| job.complete);
        let state = match self.stop {
            Stop::Finished if all_complete => "finished".to_string(),
            Stop::Finished => "over".to_string(),
            Stop::Idle => "NOT FINISHED".to_string(),
            Stop::End => format!("NOT FINISHED at end = {},", self.end),
        };
        writeln!(
            f,
            "{}, {}, seed {}: {state} after {} of simulated time",
            number(self.hosts.into(), "host", "hosts"),
            number(self.switches.into(), "switch", "switches"),
            self.seed,
            time(self.seconds)
        )?;
        for warning in &self.warnings {
            writeln!(f, "WARNING     {warning}")?;
        }
        write_jobs(f, self)?;
        if let Some(training) = &self.training {
            write!(f, "{training}")?;
        }
        if let Some(flows) = &self.flows {
            write_flows(f, flows)?;
        }
        if let Some(transport) = &self.transport {
            write_transport(f, transport)?;
        }
        if let Some(background) = &self.background {
            writeln!(
                f,
                "\nbackground: {:.1} Gbit/s received, {} packets",
                background.received_gbps, background.packets
            )?;
        }
        write_links(f, &self.links)?;
        self.pauses.iter().try_for_each(|pauses| write!(f, "{pauses}"))?;
        if self.switch_memory_bytes > 0 {
            writeln!(f, "\nswitch memory: {} in the fullest switch", bytes(self.switch_memory_bytes as u64))?;
        }
        write_cores(f, &self.cores)?;
        for shared in &self.shared {
            writeln!(f, "{} in switches: {}", shared.protocol, figures(&shared.metrics))?;
        }
        if let Some(SamplesReport { every_seconds, steps, links }) = self.sampled {
            writeln!(f, "samples: {links} links, {steps} times, every {}", time(every_seconds))?;
        }
        writeln!(f, "trace {}", self.trace_hash)?;
        write!(
            f,
            "{:.2} M packet-hops/s: {} hops in {} of processor time, {} in all, set-up {}",
            self.speed.hops_per_second * 1e-6,
            self.hops,
            time(self.speed.processor_seconds),
            time(self.speed.run_seconds),
            time(self.speed.set_up_seconds)
        )
    }
}

/// The jobs, and the training steps.
fn write_jobs(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    // Of jobs that come and go, and of those of a training step, only those that failed have lines of their own.
    let of_steps: Vec<u16> = report.steps.iter().flat_map(|step| step.jobs.iter().copied()).collect();
    for (index, job) in report.jobs.iter().enumerate() {
        let is_one_of_many = job.lifetime.is_some() || of_steps.contains(&(index as u16));
        if !is_one_of_many || !job.complete {
            write_job(f, job)?;
        }
    }
    report.steps.iter().try_for_each(|step| write!(f, "{step}"))
}

/// All switches' processors together; of levels, that of the fullest one.
fn write_cores(f: &mut fmt::Formatter<'_>, cores: &[CoresReport]) -> fmt::Result {
    let sum = |of: fn(&CoresReport) -> u64| cores.iter().map(of).sum::<u64>();
    let most = |of: fn(&CoresReport) -> u64| cores.iter().map(of).max().unwrap_or(0);
    let packets = sum(|one| one.packets);
    if packets == 0 {
        return Ok(());
    }
    let each = |cycles: u64| cycles as f64 / packets as f64;
    let kinds = cores[0]
        .cycles
        .iter()
        .enumerate()
        .map(|(index, kind)| (kind.kind, each(cores.iter().map(|one| one.cycles[index].cycles).sum())));
    let kinds = kinds.chain([("waiting for locks", each(sum(|one| one.lock_waiting_cycles)))]);
    let spent: Vec<String> =
        kinds.filter(|(_, cycles)| *cycles > 0.0).map(|(kind, cycles)| format!("{kind} {cycles:.0}")).collect();
    let (used, busiest) = (number(cores.len() as u64, "switch", "switches"), most(|one| (1e3 * one.busy) as u64));
    writeln!(
        f,
        "\ncores: {packets} packets in {used}, {:.0} cycles each: {}",
        each(sum(CoresReport::service_cycles)),
        spent.join(", ")
    )?;
    writeln!(
        f,
        "  fullest     {:.1} % busy, {} packets waiting for one subset, {} of packets, {} of blocks",
        busiest as f64 / 10.0,
        most(|one| one.queue_peak),
        bytes(most(|one| one.input_peak_bytes)),
        bytes(most(|one| one.working_peak_bytes))
    )?;
    for (count, what) in [
        (sum(|one| one.refused), "packets lost, as the packet memory was full"),
        (sum(|one| one.marked), "packets marked, as the packet memory was filling"),
        (sum(|one| one.crowded), "buffers begun in a cluster whose memory was full"),
    ] {
        if count > 0 {
            writeln!(f, "  {count} {what}")?;
        }
    }
    Ok(())
}

/// A protocol's own metrics: of counters the sum over all switches, of gauges the largest value; without counters of
/// zero.
fn figures(metrics: &[MetricReport]) -> String {
    let happened = metrics.iter().filter(|metric| metric.kind == "gauge" || metric.value > 0.0);
    happened.map(|metric| format!("{} {}", metric.name.replace('_', " "), metric.value)).collect::<Vec<_>>().join(", ")
}

fn write_job(f: &mut fmt::Formatter<'_>, job: &JobReport) -> fmt::Result {
    let trees = match (job.servers, job.trees.len()) {
        (Some(servers), _) => number(servers as u64, "server", "servers"),
        (None, 0) if job.sums_every_hop => "dynamic trees".to_string(),
        (None, 0) => "no switch sums".to_string(),
        (None, trees) => {
            format!("{} below {}", number(trees as u64, "tree", "trees"), TreeReport::roots(&job.trees))
        }
    };
    writeln!(
        f,
        "\n{}: {} on {} ranks, {}, {trees}, {} slots",
        job.name,
        job.protocol,
        job.ranks,
        bytes(job.tensor_bytes),
        job.slots
    )?;
    if let Some(operator) = &job.operator {
        write_operator(f, operator, job.complete)?;
    }
    match (job.seconds, job.goodput_gbps) {
        (Some(seconds), Some(goodput)) => {
            let of = if job.completed < job.collectives as usize {
                format!(" of {}", job.collectives)
            } else {
                String::new()
            };
            writeln!(f, "  completion  {} (median of {}{of})", time(seconds), job.completed)?;
            writeln!(f, "  goodput     {goodput:.2} Gbit/s")?;
        }
        _ => writeln!(f, "  completion  none")?,
    }
    write!(f, "  packets     {} sent, {} of them again", job.packets_sent, job.retransmissions)?;
    match job.reissued {
        0 => writeln!(f)?,
        reissued => writeln!(f, " ({reissued} of blocks that all ranks sent again)")?,
    }
    if let Some(contributed) = job.contributed {
        writeln!(f, "  results     over {:.2} % of the ranks", contributed * 100.0)?;
    }
    for (where_to, drops) in [("to hosts", &job.drops), ("to switches", &job.switch_drops)] {
        if !drops.is_empty() {
            writeln!(f, "  of no use   {where_to}: {}", counts(drops))?;
        }
    }
    if let Some(slots) = job.slots_in_use {
        writeln!(f, "  slots       {:.0} slots of switches on average, {} at most", slots.mean, slots.most)?;
    }
    if let Some(bottlenecks) = &job.bottlenecks {
        write!(f, "{bottlenecks}")?;
    }
    let in_switches = figures(&job.switch_metrics);
    if !in_switches.is_empty() {
        writeln!(f, "  in switches {in_switches}")?;
    }
    write_failures(f, job)
}

/// Why a job does not finish, and which errors it has.
fn write_failures(f: &mut fmt::Formatter<'_>, job: &JobReport) -> fmt::Result {
    if let Some(sentence) = &job.fault {
        writeln!(f, "  FAULT       {sentence}")?;
    }
    if let Some(sentence) = &job.stuck {
        writeln!(f, "  STUCK       {sentence}")?;
    }
    for sentence in job.errors.iter().take(MAX_ERRORS_SHOWN) {
        writeln!(f, "  WRONG       {sentence}")?;
    }
    if job.errors.len() > MAX_ERRORS_SHOWN {
        writeln!(f, "  WRONG       and {} more", job.errors.len() - MAX_ERRORS_SHOWN)?;
    }
    Ok(())
}

/// The operator, and what the run has verified about its results.
fn write_operator(f: &mut fmt::Formatter<'_>, operator: &OperatorReport, is_complete: bool) -> fmt::Result {
    let verified = match (operator.data, is_complete) {
        (Data::Real, true) => "; every result is what the module gives at home",
        (Data::Fingerprints, true) => "; fingerprints in its place: every contribution is there once",
        (_, false) => "",
    };
    writeln!(f, "  operator    {} {} of {}{verified}", operator.name, &operator.sha256[..8], operator.element)?;
    let Some(OperatorCycles { per_call, per_element, estimated }) = operator.cycles else { return Ok(()) };
    let how = match estimated {
        true => "ESTIMATED from its fuel: `tributary operator cycles` counts them",
        false => "counted",
    };
    writeln!(f, "  on cores    {per_element:.1} cycles an element and {per_call:.0} a call, {how}")
}

const MAX_ERRORS_SHOWN: usize = 5;

fn write_flows(f: &mut fmt::Formatter<'_>, flows: &FlowReport) -> fmt::Result {
    writeln!(f, "\nmessages: {} of {} received whole", flows.finished, flows.flows)?;
    if flows.finished == 0 {
        return Ok(());
    }
    writeln!(
        f,
        "  completion  mean {}, p50 {}, p99 {}, longest {}",
        time(flows.mean_seconds),
        time(flows.p50_seconds),
        time(flows.p99_seconds),
        time(flows.max_seconds)
    )?;
    write_left_out(f, flows.flows - flows.finished)
}

/// A table of completion times says how many flows are not in it: they would be its longest.
fn write_left_out(f: &mut fmt::Formatter<'_>, unfinished: usize) -> fmt::Result {
    match unfinished {
        0 => Ok(()),
        _ => writeln!(f, "  WITHOUT     the {unfinished} that did not finish, which would be the longest"),
    }
}

fn write_transport(f: &mut fmt::Formatter<'_>, transport: &TransportReport) -> fmt::Result {
    writeln!(
        f,
        "\n{}: {} of {} arrived whole, {} packets sent again",
        flows_under(&transport.congestion_control),
        transport.finished,
        transport.started,
        transport.retransmissions
    )?;
    if !transport.classes.is_empty() {
        let slowdown = ["slowdown", "p50", "p99"];
        write!(f, "  {:<14}{:>8}{:>14}{:>14}{:>14}", "completion", "flows", "mean", "p50", "p99")?;
        writeln!(f, "{:>10}{:>8}{:>8}", slowdown[0], slowdown[1], slowdown[2])?;
    }
    for class in &transport.classes {
        let [mean, p50, p99] = [class.mean_seconds, class.p50_seconds, class.p99_seconds].map(time);
        write!(f, "  {:<14}{:>8}{mean:>14}{p50:>14}{p99:>14}", class.name, class.flows)?;
        let FlowClass { mean_slowdown, p50_slowdown, p99_slowdown, .. } = class;
        writeln!(f, "{mean_slowdown:>10.2}{p50_slowdown:>8.2}{p99_slowdown:>8.2}")?;
    }
    write_left_out(f, transport.started - transport.finished)?;
    transport.each.iter().try_for_each(|each| write_transport(f, each))
}

fn write_links(f: &mut fmt::Formatter<'_>, groups: &[LinkGroup]) -> fmt::Result {
    let paused = groups.iter().any(|group| group.pauses > 0);
    writeln!(
        f,
        "\n{:<14}{:>7}{:>12}{:>10}{:>12}{:>14}{:>10}{}  lost",
        "links",
        "number",
        "used, mean",
        "most",
        "packets",
        "queue, most",
        "marks",
        if paused { "    pauses" } else { "" }
    )?;
    for group in groups {
        writeln!(
            f,
            "{:<14}{:>7}{:>10.1} %{:>8.1} %{:>12}{:>10.1} KiB{:>10}{}  {}",
            group.name,
            group.links,
            group.mean_utilisation * 100.0,
            group.max_utilisation * 100.0,
            group.packets,
            group.max_queue_bytes as f64 / 1024.0,
            group.marks,
            if paused { format!("{:>10}", group.pauses) } else { String::new() },
            if group.losses.is_empty() { "-".to_string() } else { counts(&group.losses) }
        )?;
    }
    Ok(())
}

fn counts(counts: &[(&str, u64)]) -> String {
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

pub(super) fn number(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Bytes in a suitable unit.
pub(super) fn bytes(bytes: u64) -> String {
    let (factor, unit) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..1_048_576 => (1024.0, "KiB"),
        1_048_576..1_073_741_824 => (1_048_576.0, "MiB"),
        _ => (1_073_741_824.0, "GiB"),
    };
    let short = format!("{:.1}", bytes as f64 / factor);
    format!("{} {unit}", short.strip_suffix(".0").unwrap_or(&short))
}

/// Seconds in a suitable unit.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.1} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}
