//! Training steps in a report: how long they take, how much of that the ranks wait, and for which rank; and a timeline.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;
use tributary_proto::contract::time::Time;

use super::text::{bytes, number, time};
use super::{Figure, Series};
use crate::engine::{Simulation, StepGraph, StepRank, StepSpan, StepWork};

/// One training step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Its name.
    pub name: String,
    /// Its ranks.
    pub ranks: usize,
    /// The jobs that carry its collectives, by number.
    pub jobs: Vec<u16>,
    /// How many steps each rank makes.
    pub iterations: u32,
    /// How many of them every rank has completed.
    pub completed: usize,
    /// The median time of these, in seconds: from the last rank's end of one to its end of the next.
    pub seconds: Option<f64>,
    /// What a rank computes in a step, on average over ranks.
    pub computed_seconds: f64,
    /// Exposed communication: how long a rank computes nothing in a step, on average over ranks and steps.
    pub exposed_seconds: Option<f64>,
    /// How long a rank has collectives under way in a step, on average.
    pub communicated_seconds: Option<f64>,
    /// The bytes of a rank's collectives in a step, on average over ranks.
    pub bytes: f64,
    /// These bits in the time that collectives are under way.
    pub goodput_gbps: Option<f64>,
    /// How long a rank's collectives waited in a step for the last rank to begin them, on average.
    pub waited_seconds: Option<f64>,
    /// The rank for which others waited longest, if they waited.
    pub waited_for: Option<usize>,
    /// What goes another way than the protocol's, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a rank did in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanRow {
    /// The number of the training step in the file.
    pub step: usize,
    /// The rank.
    pub rank: usize,
    /// The iteration.
    pub iteration: u32,
    /// "computing", or the stream of a collective.
    pub line: String,
    /// What it did.
    pub name: String,
    /// The bytes of a collective; 0 of a computation.
    pub bytes: u64,
    /// When it began, in seconds.
    pub start: f64,
    /// When it was complete.
    pub end: f64,
}

const COMPUTING: &str = "computing";

/// The reports of all training steps.
pub(super) fn reports(simulation: &Simulation) -> Vec<StepReport> {
    let graphs = simulation.steps.graphs.iter().enumerate();
    graphs.map(|(number, graph)| report(graph, &ranks_of(simulation, number))).collect()
}

fn ranks_of(simulation: &Simulation, graph: usize) -> Vec<&StepRank> {
    simulation.steps.ranks.iter().filter(|rank| rank.graph == graph).collect()
}

fn report(graph: &StepGraph, ranks: &[&StepRank]) -> StepReport {
    let completed = ranks.iter().map(|rank| rank.ends.len()).min().unwrap_or(0);
    let count = ranks.len().max(1) as f64;
    let last = |iteration: usize| ranks.iter().map(|rank| rank.ends[iteration]).max().unwrap_or(graph.start);
    let mut ends = vec![graph.start];
    ends.extend((0..completed).map(last));
    let mut times: Vec<f64> = ends.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    let steps = (completed > 0).then_some(completed as f64 * count);
    let done = |rank: &StepRank| -> Vec<StepSpan> {
        rank.spans.iter().copied().filter(|span| (span.iteration as usize) < completed).collect()
    };
    let (mut computed, mut idle, mut communicated, mut moved) = (0.0, 0.0, 0.0, 0.0);
    for rank in ranks {
        let spans = done(rank);
        let (computing, others): (Vec<StepSpan>, Vec<StepSpan>) =
            spans.iter().partition(|span| matches!(graph.nodes[span.node as usize].work, StepWork::Compute(_)));
        let busy = computing.iter().map(|span| span.end.since(span.start).as_secs_f64()).sum::<f64>();
        let whole = completed.checked_sub(1).map_or(0.0, |end| rank.ends[end].since(graph.start).as_secs_f64());
        computed += busy;
        idle += whole - busy;
        communicated += union(&others);
        moved += others.iter().map(|span| collective_bytes(graph, span.node) as f64).sum::<f64>();
    }
    let (waited, waited_for) = waits(graph, ranks, completed);
    StepReport {
        name: graph.name.clone(),
        ranks: ranks.len(),
        jobs: graph.jobs.iter().map(|job| job.0).collect(),
        iterations: graph.iterations,
        completed,
        seconds: times.get(times.len() / 2).copied(),
        computed_seconds: steps.map_or(0.0, |steps| computed / steps),
        exposed_seconds: steps.map(|steps| idle / steps),
        communicated_seconds: steps.map(|steps| communicated / steps),
        bytes: steps.map_or(0.0, |steps| moved / steps),
        goodput_gbps: (communicated > 0.0).then(|| moved * 8e-9 / communicated),
        waited_seconds: steps.map(|steps| waited / steps),
        waited_for: waited_for.filter(|_| waited > 0.0),
        notes: graph.notes.clone(),
    }
}

fn collective_bytes(graph: &StepGraph, node: u32) -> u64 {
    match graph.nodes[node as usize].work {
        StepWork::Compute(_) => 0,
        StepWork::Collective { bytes, .. } => bytes,
    }
}

/// The time in which at least one of them is under way.
fn union(spans: &[StepSpan]) -> f64 {
    let mut periods: Vec<(Time, Time)> = spans.iter().map(|span| (span.start, span.end)).collect();
    periods.sort_unstable();
    let (mut sum, mut until) = (0.0, Time::ZERO);
    for (start, end) in periods {
        sum += end.max(until).since(start.max(until)).as_secs_f64();
        until = until.max(end);
    }
    sum
}

/// An iteration, a node and the ranks of a group.
type Collective<'a> = (u32, u32, &'a [usize]);

/// How long ranks waited for the last to begin a collective, and for which rank they waited longest.
fn waits(graph: &StepGraph, ranks: &[&StepRank], completed: usize) -> (f64, Option<usize>) {
    // By iteration, node and group, which ranks began the collective, and when.
    let mut begun: BTreeMap<Collective<'_>, Vec<(Time, usize)>> = BTreeMap::new();
    for rank in ranks {
        for span in rank.spans.iter().filter(|span| (span.iteration as usize) < completed) {
            if let StepWork::Collective { stream, .. } = graph.nodes[span.node as usize].work
                && let Some(group) = graph.groups[usize::from(stream)].iter().find(|group| group.contains(&rank.rank))
            {
                begun.entry((span.iteration, span.node, group)).or_default().push((span.start, rank.rank));
            }
        }
    }
    let mut caused = BTreeMap::new();
    for starts in begun.values() {
        let Some(&(last, rank)) = starts.iter().max_by_key(|(start, rank)| (*start, std::cmp::Reverse(*rank))) else {
            continue;
        };
        let waited: f64 = starts.iter().map(|(start, _)| last.since(*start).as_secs_f64()).sum();
        *caused.entry(rank).or_insert(0.0) += waited;
    }
    let most = caused.iter().max_by(|one, other| one.1.total_cmp(other.1)).map(|(&rank, _)| rank);
    (caused.values().sum(), most)
}

/// What all ranks did, in the order of steps, ranks and time.
pub(super) fn rows(simulation: &Simulation) -> Vec<SpanRow> {
    let rows = simulation.steps.ranks.iter().flat_map(|rank| {
        let graph = &simulation.steps.graphs[rank.graph];
        let mut spans = rank.spans.clone();
        spans.sort_unstable_by_key(|span| (span.start, span.iteration, span.node));
        spans.into_iter().map(move |span| {
            let node = &graph.nodes[span.node as usize];
            SpanRow {
                step: rank.graph,
                rank: rank.rank,
                iteration: span.iteration,
                line: match node.work {
                    StepWork::Compute(_) => COMPUTING.to_string(),
                    StepWork::Collective { stream, .. } => graph.streams[usize::from(stream)].clone(),
                },
                name: node.name.clone(),
                bytes: collective_bytes(graph, span.node),
                start: span.start.as_secs_f64(),
                end: span.end.as_secs_f64(),
            }
        })
    });
    rows.collect()
}

/// Writes a timeline in Chrome's format, which Perfetto opens: a process for each rank, a thread for what it computes
/// and for each stream of collectives.
pub(super) fn write_trace(steps: &[StepReport], rows: &[SpanRow], out: &mut dyn Write) -> io::Result<()> {
    let mut lines: BTreeMap<(usize, usize, &str), usize> = BTreeMap::new();
    let (mut first, mut asynchronous) = (true, 0);
    let mut event = |out: &mut dyn Write, event: serde_json::Value| -> io::Result<()> {
        out.write_all(if std::mem::take(&mut first) { b"{\"traceEvents\":[\n" } else { b",\n" })?;
        write!(out, "{event}")
    };
    for row in rows {
        let (pid, next) = ((row.step << 16) + row.rank, lines.len());
        let thread = *lines.entry((row.step, row.rank, &row.line)).or_insert(next);
        if thread == next {
            let name = format!("{} rank {}", steps[row.step].name, row.rank);
            let process = json!({ "ph": "M", "pid": pid, "name": "process_name", "args": { "name": name } });
            event(out, process)?;
            let meta =
                json!({ "ph": "M", "pid": pid, "tid": thread, "name": "thread_name", "args": { "name": row.line } });
            event(out, meta)?;
        }
        let args = json!({ "iteration": row.iteration, "bytes": row.bytes });
        let whole = json!({ "pid": pid, "tid": thread, "name": row.name, "cat": row.line, "args": args });
        let at = |phase: &str, seconds: f64, more: serde_json::Value| {
            let mut event = whole.clone();
            event["ph"] = phase.into();
            event["ts"] = (1e6 * seconds).into();
            if let (Some(event), serde_json::Value::Object(more)) = (event.as_object_mut(), more) {
                event.extend(more);
            }
            event
        };
        if row.line == COMPUTING {
            event(out, at("X", row.start, json!({ "dur": 1e6 * (row.end - row.start) })))?;
        } else {
            // Collectives of a stream overlap, so they are asynchronous events, which have an id each.
            asynchronous += 1;
            event(out, at("b", row.start, json!({ "id": asynchronous })))?;
            event(out, at("e", row.end, json!({ "id": asynchronous })))?;
        }
    }
    out.write_all(if first { b"{\"traceEvents\":[\n]}\n" } else { b"\n]}\n" })
}

/// The last step of rank 0 as a timing diagram: a line is high while something is under way.
pub(super) fn figures(steps: &[StepReport], rows: &[SpanRow]) -> Vec<Figure> {
    let figure = |(number, step): (usize, &StepReport)| {
        let last = step.completed.checked_sub(1)? as u32;
        let of_rank = rows.iter().filter(|row| (row.step, row.rank, row.iteration) == (number, 0, last));
        let of_rank: Vec<&SpanRow> = of_rank.collect();
        let begin = of_rank.iter().map(|row| row.start).fold(f64::INFINITY, f64::min);
        let mut lines: Vec<&str> = of_rank.iter().map(|row| row.line.as_str()).collect();
        lines.sort_unstable_by_key(|&line| (line != COMPUTING, line));
        lines.dedup();
        let series = lines.iter().enumerate().map(|(height, line)| {
            let mut periods: Vec<[f64; 2]> = Vec::new();
            for row in of_rank.iter().filter(|row| row.line == *line) {
                match periods.last_mut() {
                    Some(last) if row.start <= last[1] => last[1] = last[1].max(row.end),
                    _ => periods.push([row.start, row.end]),
                }
            }
            let (low, high) = (height as f64, height as f64 + 0.8);
            let in_ms = periods.into_iter().map(|period| period.map(|at| 1e3 * (at - begin)));
            let points = in_ms.flat_map(|[from, to]| [[from, low], [from, high], [to, high], [to, low]]);
            Series::new(*line, points.collect())
        });
        Some(Figure {
            title: format!("{}: the last step of rank 0", step.name),
            x: "time in the step, ms".into(),
            y: "under way where high".into(),
            log_x: false,
            series: series.collect(),
            marks: Vec::new(),
        })
    };
    steps.iter().enumerate().filter_map(figure).collect()
}

impl StepReport {
    /// Why the run is wrong, if it is.
    pub(super) fn failure(&self) -> Option<String> {
        let (name, completed, all) = (&self.name, self.completed, self.iterations);
        (completed < all as usize).then(|| format!("{name}: every rank has completed {completed} of its {all} steps"))
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = number(self.ranks as u64, "rank", "ranks");
        writeln!(f, "\n{}: {} of {} steps of {ranks}", self.name, self.completed, self.iterations)?;
        if let (Some(seconds), Some(exposed)) = (self.seconds, self.exposed_seconds) {
            writeln!(f, "  step        {} (median of {})", time(seconds), self.completed)?;
            let share = 100.0 * exposed / (self.computed_seconds + exposed).max(f64::MIN_POSITIVE);
            let computed = time(self.computed_seconds);
            writeln!(f, "  computing   {computed}, exposed communication {} ({share:.1} %)", time(exposed))?;
        }
        if let (Some(under_way), Some(goodput)) = (self.communicated_seconds, self.goodput_gbps) {
            let all = bytes(self.bytes as u64);
            writeln!(f, "  collectives {all} a step, under way {}, {goodput:.2} Gbit/s", time(under_way))?;
        }
        if let (Some(waited), Some(rank)) = (self.waited_seconds, self.waited_for) {
            writeln!(f, "  waiting     {} for others to begin, most for rank {rank}", time(waited))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  way         {note}"))
    }
}
