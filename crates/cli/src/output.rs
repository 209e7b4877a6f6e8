//! Everything that the program prints: lines and JSON to stdout, complaints to stderr.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use crate::sink::Sink;

/// Prints a line to stdout.
pub fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", printable(text))?;
    out.flush()
}

/// Prints a value as one line of JSON to stdout.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// The stdout of a daemon. A daemon goes on whatever becomes of its stdout: lines that nobody takes are lost, and the log
/// has the same.
pub struct Announcer {
    json: bool,
    sink: Sink,
}

impl Announcer {
    /// Announces as JSON or for people.
    pub fn start(json: bool) -> io::Result<Announcer> {
        Ok(Announcer { json, sink: Sink::start_with(io::stdout())? })
    }

    /// Prints one line, unless stdout is closed, full or stuck.
    pub fn announce(&self, object: &Value, text: &str) {
        let line = if self.json { object.to_string() } else { printable(text) };
        self.sink.push(format!("{line}\n").into_bytes());
        self.sink.flush();
    }
}

/// A time in the largest unit of which there is one, and the next smaller one.
pub fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.0} s"),
        60..3_600 => format!("{} min", whole / 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3_600 % 24),
    }
}

/// The text without characters that control a terminal, which others may have put into names and reasons.
pub fn printable(text: &str) -> String {
    let escape = |c: char| if c.is_control() && c != '\n' { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// The same as one line.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

/// Prints a line to stderr. If even that fails, the error cannot be reported.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

/// Formats numbers as `0, 2, 3`; a dash if there are none.
pub fn list(numbers: &[u16]) -> String {
    match numbers {
        [] => "-".to_string(),
        _ => numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The first four names, and how many more there are; a dash if there are none.
pub fn first_names<S: AsRef<str>>(names: &[S]) -> String {
    const FIRST: usize = 4;
    let first: Vec<&str> = names.iter().take(FIRST).map(AsRef::as_ref).collect();
    match names.len() {
        0 => "-".to_owned(),
        count if count <= FIRST => first.join(", "),
        count => format!("{} and {} more", first.join(", "), count - FIRST),
    }
}

/// Rows under headings, with columns as wide as their widest cell; numbers are aligned to the right.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Table {
        let mut table = Table::default();
        table.row(headings);
        table
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text, without a newline at the end.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &'_ [String], column: usize| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0))
            .collect();
        let right: Vec<bool> = (0..columns).map(|column| self.is_numeric(column)).collect();
        let lines: Vec<String> = self
            .rows
            .iter()
            .map(|row| {
                let cells: Vec<String> = (0..columns)
                    .map(|column| {
                        let (text, width) = (cell(row, column), widths[column]);
                        if right[column] { format!("{text:>width$}") } else { format!("{text:<width$}") }
                    })
                    .collect();
                cells.join("  ").trim_end().to_string()
            })
            .collect();
        lines.join("\n")
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut below = self.rows.iter().skip(1).filter_map(|row| row.get(column)).peekable();
        below.peek().is_some() && below.all(|text| text.parse::<f64>().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_controls_a_terminal_is_printed() {
        assert_eq!(printable("\u{1b}[2J a\u{7}\nb \u{9b}"), "\\u{1b}[2J a\\u{7}\nb \\u{9b}");
        assert_eq!(one_line("a\r\nFAKE"), "a\\r\\nFAKE");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() {
        let mut table = Table::new(["job", "packets"]);
        table.row(["train", "7"]);
        table.row(["a", "1234567890"]);
        assert_eq!(table.render(), "job       packets\ntrain           7\na      1234567890");
    }
}
