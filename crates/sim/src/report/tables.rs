//! A report as files: one JSON object, and tables with one row for each job, collective, flow, link, queue, metric, or step
//! of time.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{CoresSample, JobReport, Report, Samples, TreeReport, steps};
use crate::cores::steps::Kind;
use crate::engine::Gauge;
use crate::net::LossCause;
use crate::table::{Format, Table};

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {why}", .path.display())]
pub struct FileError {
    path: PathBuf,
    why: io::Error,
}

impl Report {
    /// Writes `report.json` and a file for each table into a directory, which is made if needed.
    pub fn write_files(&self, directory: &Path, format: Format) -> Result<(), FileError> {
        fs::create_dir_all(directory).map_err(|why| FileError { path: directory.into(), why })?;
        write_whole(directory.join("report.json"), |out| {
            serde_json::to_writer_pretty(&mut *out, self)?;
            out.write_all(b"\n")
        })?;
        if !self.steps.is_empty() {
            let trace = directory.join("timeline.json");
            write_whole(trace, |out| steps::write_trace(&self.steps, &self.span_rows, out))?;
        }
        self.tables().iter().try_for_each(|table| {
            let path = directory.join(table.name).with_extension(format.name());
            write_whole(path, |out| table.write(format, out))
        })
    }
}

/// Writes a file so that it is either complete or, for example on a full disk, unchanged.
pub fn write_whole(path: PathBuf, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), FileError> {
    let mut partial = path.clone().into_os_string();
    partial.push(".part");
    let written = File::create(&partial).map(BufWriter::new).and_then(|mut out| {
        write(&mut out)?;
        out.flush()?;
        fs::rename(&partial, &path)
    });
    written.map_err(|why| {
        let _ = fs::remove_file(&partial);
        FileError { path, why }
    })
}

impl Report {
    /// All tables, including those without rows. `docs/simulator-reference.md` explains the columns.
    pub fn tables(&self) -> [Table; 13] {
        [
            self.job_table(),
            self.collective_table(),
            self.flow_table(),
            self.link_table(),
            self.queue_table(),
            self.sample_table(),
            self.switch_sample_table(),
            self.job_sample_table(),
            self.switch_metric_table(),
            self.core_table(),
            self.span_table(),
            self.pause_table(),
            self.bottleneck_table(),
        ]
        .map(|table| table.made_by(&self.origin))
    }

    fn job_table(&self) -> Table {
        let jobs = || self.jobs.iter();
        Table::new("jobs")
            .text("job", jobs().map(|job| &job.name))
            .text("protocol", jobs().map(|job| job.protocol))
            .whole("ranks", jobs().map(|job| job.ranks as u64))
            .whole("tensor_bytes", jobs().map(|job| job.tensor_bytes))
            .whole("slots", jobs().map(|job| job.slots.into()))
            .whole("trees", jobs().map(|job| job.trees.len() as u64))
            .text("roots", jobs().map(|job| TreeReport::roots(&job.trees)))
            .flag("complete", jobs().map(|job| job.complete))
            .real("seconds", jobs().map(|job| job.seconds))
            .real("goodput_gbps", jobs().map(|job| job.goodput_gbps))
            .whole("packets_sent", jobs().map(|job| job.packets_sent))
            .whole("retransmissions", jobs().map(|job| job.retransmissions))
            .whole("reissued", jobs().map(|job| job.reissued))
            .real("in_network", jobs().map(|job| job.in_network))
            .text("model", jobs().map(|job| job.lifetime.as_ref().map_or("", |lifetime| &lifetime.model)))
            .real("arrived_s", jobs().map(|job| Some(job.lifetime.as_ref()?.arrived)))
            .real("placed_s", jobs().map(|job| Some(job.lifetime.as_ref()?.placed)))
            .real("left_s", jobs().map(|job| job.lifetime.as_ref()?.left))
            .flag("estimated", jobs().map(JobReport::has_estimates))
    }

    fn collective_table(&self) -> Table {
        let rows = || {
            let jobs = self.jobs.iter();
            jobs.flat_map(|job| job.iterations.iter().enumerate().map(move |(number, row)| (job, number, row)))
        };
        Table::new("collectives")
            .text("job", rows().map(|(job, ..)| &job.name))
            .whole("collective", rows().map(|(_, number, _)| number as u64))
            .real("start_s", rows().map(|(.., row)| row.start))
            .real("end_s", rows().map(|(.., row)| row.end))
            .real("seconds", rows().map(|(.., row)| row.end.map(|end| end - row.start)))
            .whole("ranks_completed", rows().map(|(.., row)| row.completed.into()))
    }

    fn flow_table(&self) -> Table {
        let rows = || self.flow_rows.iter();
        Table::new("flows")
            .text("kind", rows().map(|row| row.kind))
            .whole("src", rows().map(|row| row.src.into()))
            .whole("dst", rows().map(|row| row.dst.into()))
            .whole("bytes", rows().map(|row| row.bytes))
            .real("start_s", rows().map(|row| row.start))
            .real("seconds", rows().map(|row| row.seconds))
            .real("slowdown", rows().map(|row| row.slowdown))
    }

    fn link_table(&self) -> Table {
        let rows = || self.link_rows.iter();
        let table = self
            .ends("links")
            .whole("from_level", rows().map(|row| row.from_level.into()))
            .whole("to_level", rows().map(|row| row.to_level.into()))
            .real("utilisation", rows().map(|row| row.utilisation))
            .whole("packets", rows().map(|row| row.counters.packets))
            .whole("bytes", rows().map(|row| row.counters.bytes));
        let causes = LossCause::ALL.into_iter().filter(|&cause| cause != LossCause::QueueFull);
        causes.fold(table, |table, cause| {
            table.whole(format!("lost_{}", cause.name()), rows().map(|row| row.counters.losses[cause as usize]))
        })
    }

    /// The output queue before each link.
    fn queue_table(&self) -> Table {
        let rows = || self.link_rows.iter();
        self.ends("queues")
            .whole("max_bytes", rows().map(|row| row.counters.max_queue_bytes))
            .whole("marks", rows().map(|row| row.counters.marks))
            .whole("lost_queue_full", rows().map(|row| row.counters.losses[LossCause::QueueFull as usize]))
            .whole("pauses", rows().map(|row| row.counters.pauses))
            .whole("max_ingress_bytes", rows().map(|row| row.counters.max_ingress_bytes))
    }

    /// Links and their queues over time; without rows if the file asks for no samples.
    fn sample_table(&self) -> Table {
        let rows = || self.samples.iter().flat_map(Samples::link_samples);
        Table::new("samples")
            .real("time_s", rows().map(|row| row.time.as_secs_f64()))
            .whole("link", rows().map(|row| row.link.0.into()))
            .whole("queue_bytes", rows().map(|row| row.queued))
            .real("utilisation", rows().map(|row| row.utilisation))
    }

    /// Switches over time.
    fn switch_sample_table(&self) -> Table {
        let rows = || self.samples.iter().flat_map(Samples::switch_samples);
        let table = Table::new("switch_samples")
            .real("time_s", rows().map(|(time, ..)| time.as_secs_f64()))
            .whole("switch", rows().map(|(_, switch, _)| switch as u64))
            .whole("slots_in_use", rows().map(|(.., occupancy)| occupancy.slots))
            .whole("memory_in_use_bytes", rows().map(|(.., occupancy)| occupancy.bytes))
            .whole("waiting_packets", rows().map(|(.., occupancy)| occupancy.waiting))
            .whole("input_bytes", rows().map(|(.., occupancy)| occupancy.input_bytes))
            .whole("working_bytes", rows().map(|(.., occupancy)| occupancy.working_bytes));
        // Zeros for switches without cores.
        let cores = || {
            self.samples.iter().flat_map(|samples| {
                samples.cores_samples().chain(std::iter::repeat(CoresSample::default())).take(samples.switches.len())
            })
        };
        let table = table
            .real("handled_gbps", cores().map(|cores| cores.handled_gbps))
            .real("cores_waiting", cores().map(|cores| cores.waiting_for_locks));
        Kind::ALL.into_iter().enumerate().fold(table, |table, (index, kind)| {
            table.real(format!("cores_{}", kind.name()), cores().map(|cores| cores.in_step[index]))
        })
    }

    /// Jobs over time: the slots that switches hold for them, and the gauges of their ranks' machines.
    fn job_sample_table(&self) -> Table {
        let rows = || self.samples.iter().flat_map(Samples::job_samples);
        let location = |gauge: Gauge| gauge.rank.map_or("switches".to_string(), |rank| format!("rank {rank}"));
        Table::new("job_samples")
            .real("time_s", rows().map(|(time, ..)| time.as_secs_f64()))
            .text("job", rows().map(|(_, gauge, _)| &self.jobs[usize::from(gauge.job.0)].name))
            .text("location", rows().map(|(_, gauge, _)| location(gauge)))
            .text("metric", rows().map(|(_, gauge, _)| gauge.name))
            .real("value", rows().map(|(.., value)| value))
    }

    /// The metrics of protocols in each switch, under their own names.
    fn switch_metric_table(&self) -> Table {
        let rows = || self.metric_rows.iter();
        Table::new("switch_metrics")
            .whole("switch", rows().map(|row| row.switch.into()))
            .text("protocol", rows().map(|row| row.protocol))
            .text("job", rows().map(|row| &row.job))
            .text("metric", rows().map(|row| row.metric.name))
            .text("kind", rows().map(|row| row.metric.kind))
            .real("value", rows().map(|row| row.metric.value))
    }

    /// What the ranks of training steps did.
    fn span_table(&self) -> Table {
        let rows = || self.span_rows.iter();
        Table::new("spans")
            .text("step", rows().map(|row| &self.steps[row.step].name))
            .whole("rank", rows().map(|row| row.rank as u64))
            .whole("iteration", rows().map(|row| row.iteration.into()))
            .text("line", rows().map(|row| &row.line))
            .text("name", rows().map(|row| &row.name))
            .whole("bytes", rows().map(|row| row.bytes))
            .real("start_s", rows().map(|row| row.start))
            .real("end_s", rows().map(|row| row.end))
    }

    /// Links that PAUSE stopped; without rows if the file asks for no pauses.
    fn pause_table(&self) -> Table {
        let trees = || self.pauses.iter().flat_map(|pauses| &pauses.trees).enumerate();
        let rows = || trees().flat_map(|(number, tree)| tree.branches.iter().map(move |branch| (number, tree, branch)));
        Table::new("pauses")
            .whole("tree", rows().map(|(number, ..)| number as u64))
            .text("root", rows().map(|(_, tree, _)| &tree.root))
            .text("link", rows().map(|(.., branch)| &branch.link))
            .text("by", rows().map(|(.., branch)| &branch.by))
            .whole("depth", rows().map(|(.., branch)| branch.depth as u64))
            .whole("stops", rows().map(|(.., branch)| branch.stops))
            .real("seconds", rows().map(|(.., branch)| branch.seconds))
    }

    /// What jobs waited for; without rows if the file asks for no bottlenecks.
    fn bottleneck_table(&self) -> Table {
        let found = || self.jobs.iter().filter_map(|job| Some((&job.name, job.bottlenecks.as_ref()?)));
        let rows = || {
            found().flat_map(|(job, found)| {
                let slowest = found.shares.iter().map(move |one| (job, "slowest", one.at.clone(), one.share));
                let last = found.last.iter().map(move |one| (job, "last", format!("rank {}", one.rank), one.share));
                slowest.chain(last)
            })
        };
        Table::new("bottlenecks")
            .text("job", rows().map(|(job, ..)| job))
            .text("kind", rows().map(|(_, kind, ..)| kind))
            .text("at", rows().map(|(_, _, at, _)| at))
            .real("share", rows().map(|(.., share)| share))
    }

    /// Switches whose programs run on cores.
    fn core_table(&self) -> Table {
        let rows = || self.cores.iter();
        let table = Table::new("cores")
            .whole("switch", rows().map(|row| row.switch.into()))
            .whole("packets", rows().map(|row| row.packets))
            .whole("refused", rows().map(|row| row.refused))
            .whole("marked", rows().map(|row| row.marked))
            .real("busy", rows().map(|row| row.busy))
            .real("handled_gbps", rows().map(|row| row.handled_gbps))
            .real("queue_mean", rows().map(|row| row.queue_mean))
            .whole("queue_peak", rows().map(|row| row.queue_peak))
            .real("input_mean_bytes", rows().map(|row| row.input_mean_bytes))
            .whole("input_peak_bytes", rows().map(|row| row.input_peak_bytes))
            .real("working_mean_bytes", rows().map(|row| row.working_mean_bytes))
            .whole("working_peak_bytes", rows().map(|row| row.working_peak_bytes))
            .whole("crowded", rows().map(|row| row.crowded))
            .whole("lock_waiting_cycles", rows().map(|row| row.lock_waiting_cycles));
        let table = Kind::ALL.into_iter().enumerate().fold(table, |table, (index, kind)| {
            table.whole(format!("{}_cycles", kind.name()), rows().map(|row| row.cycles[index].cycles))
        });
        table.flag("estimated", rows().map(|row| row.estimated))
    }

    fn ends(&self, name: &'static str) -> Table {
        let rows = || self.link_rows.iter();
        Table::new(name)
            .whole("link", rows().map(|row| row.link.0.into()))
            .text("from", rows().map(|row| &row.from))
            .text("to", rows().map(|row| &row.to))
    }
}
