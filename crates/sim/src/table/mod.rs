//! Tables of results: named columns of one type each, as CSV, as Parquet, or as arrays for Python.

mod parquet;

use std::io::{self, Write};

use crate::provenance::Origin;

/// Columns of the same length.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The name, which is the file's name without its ending.
    pub name: &'static str,
    /// The columns.
    pub columns: Vec<Column>,
    /// What made it, which its file says too.
    pub origin: Option<Origin>,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The name, with the unit.
    pub name: String,
    /// One value a row.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Numbers; NaN if one is missing.
    Real(Vec<f64>),
    /// Words.
    Text(Vec<String>),
    /// Booleans.
    Flag(Vec<bool>),
}

/// The column, or the Parquet file's property, that says what made a table.
const MADE_BY: &str = "made_by";

impl Values {
    /// How many values there are.
    pub fn len(&self) -> usize {
        match self {
            Values::Whole(values) => values.len(),
            Values::Real(values) => values.len(),
            Values::Text(values) => values.len(),
            Values::Flag(values) => values.len(),
        }
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The format of a table's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet: typed columns, which pandas, Polars, DuckDB, R and Spark read.
    #[default]
    Parquet,
    /// Text with a line for each row, for all other programs; missing numbers are empty fields.
    Csv,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 2] = [Format::Parquet, Format::Csv];

    /// The name, which is also the file's ending.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
        }
    }
}

impl Table {
    /// A table without columns.
    pub fn new(name: &'static str) -> Table {
        Table { name, columns: Vec::new(), origin: None }
    }

    /// Says what made the table.
    #[must_use]
    pub fn made_by(self, origin: &Origin) -> Table {
        Table { origin: Some(origin.clone()), ..self }
    }

    /// Adds a column of whole numbers. Counts beyond 2^63 do not occur.
    #[must_use]
    pub fn whole(self, name: impl Into<String>, values: impl IntoIterator<Item = u64>) -> Table {
        self.with(name, Values::Whole(values.into_iter().map(|value| value as i64).collect()))
    }

    /// Adds a column of numbers, some of which may be missing.
    #[must_use]
    pub fn real<N: Into<Option<f64>>>(self, name: impl Into<String>, values: impl IntoIterator<Item = N>) -> Table {
        self.with(name, Values::Real(values.into_iter().map(|value| value.into().unwrap_or(f64::NAN)).collect()))
    }

    /// Adds a column of words.
    #[must_use]
    pub fn text<S: Into<String>>(self, name: impl Into<String>, values: impl IntoIterator<Item = S>) -> Table {
        self.with(name, Values::Text(values.into_iter().map(Into::into).collect()))
    }

    /// Adds a column of booleans.
    #[must_use]
    pub fn flag(self, name: impl Into<String>, values: impl IntoIterator<Item = bool>) -> Table {
        self.with(name, Values::Flag(values.into_iter().collect()))
    }

    /// Adds a column of text that people wrote: whole numbers or numbers if all values are, else words.
    #[must_use]
    pub fn written<'a>(self, name: impl Into<String>, values: impl IntoIterator<Item = &'a str>) -> Table {
        let words: Vec<&str> = values.into_iter().collect();
        let whole: Result<Vec<i64>, _> = words.iter().map(|word| word.parse()).collect();
        let real: Result<Vec<f64>, _> = words.iter().map(|word| word.parse()).collect();
        let values = match (whole, real) {
            (Ok(whole), _) => Values::Whole(whole),
            (_, Ok(real)) => Values::Real(real),
            _ => Values::Text(words.into_iter().map(String::from).collect()),
        };
        self.with(name, values)
    }

    fn with(mut self, name: impl Into<String>, values: Values) -> Table {
        debug_assert!(self.columns.iter().all(|column| column.values.len() == values.len()), "columns of equal length");
        self.columns.push(Column { name: name.into(), values });
        self
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// Writes the table as a file of this format.
    pub fn write(&self, format: Format, out: &mut (impl Write + Send)) -> io::Result<()> {
        match format {
            Format::Parquet => parquet::write(self, out),
            Format::Csv => write_csv(self, out),
        }
    }
}

/// Writes CSV (RFC 4180, with plain newlines): a heading, and a line for each row. CSV has no place for what is true of
/// the whole table, so the last column repeats what made it.
fn write_csv(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let origin = table.origin.as_ref().map(|origin| quoted(&origin.to_string()));
    let names = table.columns.iter().map(|column| quoted(&column.name));
    let names = names.chain(origin.is_some().then(|| MADE_BY.to_string())).collect::<Vec<_>>();
    writeln!(out, "{}", names.join(","))?;
    for row in 0..table.rows() {
        for (index, column) in table.columns.iter().enumerate() {
            if index > 0 {
                out.write_all(b",")?;
            }
            match &column.values {
                Values::Whole(values) => write!(out, "{}", values[row])?,
                Values::Real(values) if values[row].is_nan() => {}
                Values::Real(values) => write!(out, "{}", values[row])?,
                Values::Text(values) => out.write_all(quoted(&values[row]).as_bytes())?,
                Values::Flag(values) => write!(out, "{}", values[row])?,
            }
        }
        match &origin {
            Some(origin) => writeln!(out, ",{origin}")?,
            None => writeln!(out)?,
        }
    }
    out.flush()
}

/// A field, in quotes if it needs them.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_made_the_table() {
        let origin = Origin::of_file("seed = 1");
        let table = Table::new("t").whole("bytes", [1, 2]).made_by(&origin);
        let mut out = Vec::new();
        write_csv(&table, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("bytes,made_by\n1,{origin}\n2,{origin}\n"));
    }

    #[test]
    fn fields_are_quoted_where_they_need_it_and_missing_numbers_are_empty() {
        let table = Table::new("t")
            .text("name", ["plain", "with, comma", "with \"quotes\""])
            .real("seconds", [Some(0.5), None, Some(2.0)])
            .whole("bytes", [1, 2, 3])
            .flag("complete", [true, false, true]);
        let mut out = Vec::new();
        write_csv(&table, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "name,seconds,bytes,complete\nplain,0.5,1,true\n\"with, comma\",,2,false\n\"with \"\"quotes\"\"\",2,3,true\n"
        );
    }
}
