//! The report as files: one JSON object, and its tables.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::Report;
use crate::table::Format;

impl Report {
    /// Writes `report.json` and a file for each table into a directory, which is made if needed.
    pub fn write_files(&self, directory: &Path, format: Format) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        let mut json = serde_json::to_string_pretty(self)?;
        json.push('\n');
        fs::write(directory.join("report.json"), json)?;
        for table in self.tables() {
            let path = directory.join(table.name).with_extension(format.name());
            let mut out = BufWriter::new(fs::File::create(path)?);
            table.write(format, &mut out)?;
            out.flush()?;
        }
        Ok(())
    }
}
