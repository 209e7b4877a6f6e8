//! The report as files: one JSON object, and tables as CSV.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::Report;
use crate::net::LossCause;

impl Report {
    /// Writes `report.json`, `iterations.csv`, `flows.csv` and `links.csv` into a directory, which is made if needed.
    pub fn write_files(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        let mut json = serde_json::to_string_pretty(self)?;
        json.push('\n');
        fs::write(directory.join("report.json"), json)?;
        write_table(&directory.join("iterations.csv"), "job,iteration,start_s,end_s,ranks_completed", |out| {
            for job in &self.jobs {
                for (number, iteration) in job.iterations.iter().enumerate() {
                    let end = iteration.end.map(|end| end.to_string()).unwrap_or_default();
                    let name = quoted(&job.name);
                    writeln!(out, "{name},{number},{},{end},{}", iteration.start, iteration.completed)?;
                }
            }
            Ok(())
        })?;
        write_table(&directory.join("flows.csv"), "kind,src,dst,bytes,start_s,seconds", |out| {
            self.flow_rows.iter().try_for_each(|row| {
                writeln!(out, "{},{},{},{},{},{}", row.kind, row.src, row.dst, row.bytes, row.start, row.seconds)
            })
        })?;
        self.write_links(&directory.join("links.csv"))
    }

    fn write_links(&self, path: &Path) -> io::Result<()> {
        let causes: Vec<String> = LossCause::ALL.iter().map(|cause| format!("lost_{}", cause.name())).collect();
        let header = format!(
            "link,from,to,utilisation,packets,bytes,max_queue_bytes,marks,pauses,max_held_bytes,{}",
            causes.join(",")
        );
        write_table(path, &header, |out| {
            self.link_rows.iter().try_for_each(|row| {
                let counters = &row.counters;
                let losses: Vec<String> = counters.losses.iter().map(u64::to_string).collect();
                writeln!(
                    out,
                    "{},{},{},{},{},{},{},{},{},{},{}",
                    row.link.0,
                    row.from,
                    row.to,
                    row.utilisation,
                    counters.packets,
                    counters.bytes,
                    counters.max_queue_bytes,
                    counters.marks,
                    counters.pauses,
                    counters.max_held_bytes,
                    losses.join(",")
                )
            })
        })
    }
}

fn write_table(
    path: &Path,
    header: &str,
    rows: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(fs::File::create(path)?);
    writeln!(out, "{header}")?;
    rows(&mut out)?;
    out.flush()
}

/// A name as a CSV field.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
