//! The report as files: one JSON object, and its tables.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Report;
use crate::table::Format;

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
