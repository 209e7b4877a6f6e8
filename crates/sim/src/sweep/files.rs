//! The tables of a sweep as files beside its runs.

use std::path::Path;

use super::store::Finished;
use super::summary::{run_table, summarise, summary_table};
use crate::report::{FileError, write_whole};
use crate::table::Format;

/// Writes `summary.csv` and `runs.csv` into the sweep's folder.
pub fn write_tables(folder: &Path, keys: &[String], finished: &[Finished]) -> Result<(), FileError> {
    let format = Format::Csv;
    [summary_table(keys, &summarise(finished)), run_table(keys, finished)].iter().try_for_each(|table| {
        write_whole(folder.join(table.name).with_extension(format.name()), |out| table.write(format, out))
    })
}
