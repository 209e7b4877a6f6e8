//! A table as CSV (RFC 4180, with plain newlines).

use std::io::{self, Write};

use super::{Table, Values};

/// Writes a heading, and a line for each row.
pub fn write(table: &Table, out: &mut impl Write) -> io::Result<()> {
    let names = table.columns.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>();
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
        writeln!(out)?;
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
    fn fields_are_quoted_where_they_need_it_and_missing_numbers_are_empty() {
        let table = Table::new("t")
            .text("name", ["plain", "with, comma", "with \"quotes\""])
            .real("seconds", [Some(0.5), None, Some(2.0)])
            .whole("bytes", [1, 2, 3])
            .flag("complete", [true, false, true]);
        let mut out = Vec::new();
        write(&table, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "name,seconds,bytes,complete\nplain,0.5,1,true\n\"with, comma\",,2,false\n\"with \"\"quotes\"\"\",2,3,true\n"
        );
    }
}
