//! The folder of `--out`: for each experiment its data, its table and its picture; and a table and a page with all of them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use tributary_papers::{Outcome, Tally};

use crate::failure::Failure;
use crate::program::Program;
use crate::python::Drawer;

/// How the page of all experiments looks.
const STYLE: &str = "\
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 14px }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8886 }
img { max-width: 100%; background: white }
.differs { font-weight: bold }";

/// The columns of a table of rows.
const COLUMNS: &str = "experiment,key,what,published,low,median,high,ratio,rule,verdict,why_not\n";

/// A folder that outcomes are written into.
pub struct Folder {
    path: PathBuf,
    drawer: Drawer,
    /// What is written so far.
    written: Vec<Written>,
}

/// What the page needs of an outcome.
struct Written {
    /// The name of its files.
    name: String,
    title: String,
    /// Its part of the page, without the picture.
    section: String,
    /// The lines of its table.
    rows: String,
}

impl Folder {
    /// Makes the folder, if need be.
    pub fn new(path: &Path, program: &Program) -> Result<Folder, Failure> {
        let failed = |error| Failure::new(format!("{} cannot be made: {error}", path.display()));
        fs::create_dir_all(path).map_err(failed)?;
        Ok(Folder { path: path.to_owned(), drawer: Drawer::start(program), written: Vec::new() })
    }

    /// Where finished points are kept.
    pub fn points(&self) -> PathBuf {
        self.path.join("points")
    }

    /// Writes an outcome's data and has them drawn; returns where they are.
    pub fn write(&mut self, outcome: &Outcome) -> Result<PathBuf, Failure> {
        // Outcomes of a file and of a changed file must not replace each other.
        let name = if outcome.changes.is_empty() { outcome.id.clone() } else { format!("{}-changed", outcome.id) };
        let data = put(&self.path, &format!("{name}.json"), serde_json::to_string_pretty(outcome)? + "\n")?;
        put(&self.path, &format!("{name}.csv"), points_csv(outcome))?;
        let rows = rows_csv(outcome);
        put(&self.path, &format!("{name}-rows.csv"), format!("{COLUMNS}{rows}"))?;
        // The page shows no picture of another run.
        let _ = fs::remove_file(data.with_extension("png"));
        self.drawer.draw(&data);
        self.written.push(Written { name, title: outcome.title.clone(), section: section(outcome), rows });
        Ok(data)
    }

    /// Writes the table of all rows and the page with all outcomes of this run; returns a sentence that names them.
    pub fn finish(self, tally: &Tally) -> Result<String, Failure> {
        let all = |text: fn(&Written) -> &str| self.written.iter().map(text).collect::<String>();
        let rows = put(&self.path, "rows.csv", format!("{COLUMNS}{}", all(|one| &one.rows)))?;
        let Folder { path, drawer, written } = self;
        let drawn = drawer.finish();
        let section = |Written { name, title, section, .. }: &Written| {
            let picture = format!("{name}.png");
            match path.join(&picture).exists() {
                true => {
                    format!("{section}<p><img src=\"{picture}\" alt=\"{}\" loading=\"lazy\"></p>\n", escaped(title))
                }
                false => section.clone(),
            }
        };
        let sections: String = written.iter().map(section).collect();
        let page = put(&path, "index.html", page(tally, &sections))?;
        let (page, rows) = (page.display(), rows.display());
        Ok(match drawn {
            Ok(()) => format!("{page} shows all of them with their pictures, {rows} has their rows"),
            Err(reason) => format!("{page} shows all of them, {rows} has their rows; pictures are missing: {reason}"),
        })
    }
}

fn put(folder: &Path, name: &str, text: String) -> Result<PathBuf, Failure> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| Failure::new(format!("{} cannot be written: {error}", path.display())))?;
    Ok(path)
}

/// The page of all: its sections one after the other.
fn page(tally: &Tally, sections: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Published results beside ours</title>\n\
         <style>{STYLE}</style>\n<h1>Published results beside ours</h1>\n<p>{tally}</p>\n{sections}</html>\n"
    )
}

/// An outcome's table on the page of all.
fn section(outcome: &Outcome) -> String {
    let [id, title, source] = [&outcome.id, &outcome.title, &outcome.source].map(|text| escaped(text));
    let size = match (outcome.quick, outcome.full) {
        (true, _) => ", small inputs",
        (_, true) => ", the paper's sizes",
        _ => "",
    };
    let mut text = format!("<h2 id=\"{id}\">{title}</h2>\n<p>{source} (<code>{id}</code>{size})</p>\n<table>\n");
    text += "<tr><th><th>published<th>ours<th>agrees if<th>verdict<th>why not\n";
    for row in &outcome.rows {
        let [what, published, ours, _, rule, verdict, fault] = &row.cells;
        let cells = [what, published, ours, rule].map(|cell| format!("<td>{}", escaped(cell))).concat();
        let class = row.verdict.text().replace(' ', "-");
        let _ = writeln!(text, "<tr>{cells}<td class=\"{class}\">{}<td>{}", escaped(verdict), escaped(fault));
    }
    text + "</table>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The lines of the table, one for each row.
fn rows_csv(outcome: &Outcome) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut text = String::new();
    for row in &outcome.rows {
        let [what, _, _, _, rule, verdict, fault] = &row.cells;
        let (value, ours, ratio) =
            (row.published.value, row.ours, row.ratio.map_or(String::new(), |ratio| ratio.to_string()));
        let numbers = format!("{value},{},{},{},{ratio}", ours.low, ours.median, ours.high);
        let names = format!("{},{},{}", quoted(&outcome.id), quoted(&row.published.key), quoted(what));
        let _ = writeln!(text, "{names},{numbers},{},{},{}", quoted(rule), quoted(verdict), quoted(fault));
    }
    text
}

/// The figures' points, one a line.
fn points_csv(outcome: &Outcome) -> String {
    let mut text = "figure,series,x,y\n".to_string();
    for figure in &outcome.figures {
        for series in &figure.series {
            for [x, y] in &series.points {
                let _ = writeln!(text, "\"{}\",\"{}\",{x},{y}", figure.title, series.name);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tributary_papers::{Entry, Memory, Watch, catalogue};

    use super::*;

    /// The outcome of an experiment that takes no time.
    fn outcome() -> Outcome {
        let stop = AtomicBool::new(false);
        let formulas = |entry: &Entry| entry.published.iter().all(|published| published.construction.is_some());
        let entry = catalogue().into_iter().find(formulas).unwrap();
        entry.run(true, 1, &Watch::silent(&stop), &Memory::default()).unwrap()
    }

    #[test]
    fn the_page_has_each_row_with_its_verdict_and_whatever_is_in_a_cell() {
        let mut outcome = outcome();
        outcome.rows[0].cells[0] = "less than <b> & \"more\"".into();
        let text = section(&outcome);
        assert_eq!(text.matches("\n<tr><td>").count(), outcome.rows.len());
        assert!(text.contains("less than &lt;b&gt; &amp; &quot;more&quot;"), "{text}");
        for row in &outcome.rows {
            assert!(text.contains(&format!("\">{}<td>", row.cells[5])), "{text}");
        }
    }

    #[test]
    fn a_run_without_matplotlib_has_a_page_and_a_table_of_all_rows_and_says_what_is_missing() {
        let path = std::env::temp_dir().join(format!("tributary-folder-{}", std::process::id()));
        let program = Program::launched_by(["/bin/false", "-m", "tributary"].map(Into::into).to_vec());
        let mut folder = Folder::new(&path, &program).unwrap();
        let outcome = outcome();
        folder.write(&outcome).unwrap();
        folder.write(&Outcome { id: "again".into(), ..outcome.clone() }).unwrap();
        // A picture that is there is shown, whatever became of the others.
        fs::write(path.join("again.png"), "").unwrap();
        let said = folder.finish(&Tally::default()).unwrap();
        assert!(said.contains("index.html shows all of them") && said.contains("pictures are missing: "), "{said}");
        let page = fs::read_to_string(path.join("index.html")).unwrap();
        let picture = format!("<img src=\"again.png\" alt=\"{}\"", escaped(&outcome.title));
        assert!(page.matches("<img").count() == 1 && page.contains(&picture), "{page}");
        let rows = fs::read_to_string(path.join("rows.csv")).unwrap();
        assert_eq!(rows.lines().count(), 1 + 2 * outcome.rows.len());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn the_tables_csv_has_a_line_for_each_row_whatever_is_in_a_cell() {
        let mut outcome = outcome();
        outcome.rows[0].cells[0] = "a \"word\", and a comma".into();
        let text = rows_csv(&outcome);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), outcome.rows.len());
        let row = &outcome.rows[0];
        let names = format!("\"{}\",\"{}\",\"a \"\"word\"\", and a comma\"", outcome.id, row.published.key);
        let numbers = format!("{},{},{}", row.published.value, row.ours.low, row.ours.median);
        assert!(lines[0].starts_with(&format!("{names},{numbers},")), "{}", lines[0]);
    }
}
