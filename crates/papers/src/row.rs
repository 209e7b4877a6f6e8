//! A published number beside ours, as it is printed, and an experiment's outcome.

use serde::Serialize;

use crate::finding::{Figure, Finding, Findings};
use crate::judge::{Basis, Fault, Published, Rule, Verdict};
use crate::paper::{Change, Setting};

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The published value, and the rule.
    #[serde(flatten)]
    pub published: Published,
    /// The kind of the row.
    pub basis: Basis,
    /// Our measurement.
    pub ours: Finding,
    /// Our median divided by the published number, if that is a number and not a limit.
    pub ratio: Option<f64>,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Why not, as far as the run could measure the cause.
    pub cause: Option<String>,
    /// The row as it is printed: what, published, ours, ratio, rule, verdict, and where the cause of a difference lies.
    pub cells: [String; 7],
    /// The row with other values of the settings that the paper leaves open, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Elsewhere>,
}

impl Row {
    /// The published number as it is printed.
    pub fn published_text(&self) -> String {
        match &self.published.says {
            Some(says) => says.clone(),
            None => with_unit(&number(self.published.value), &self.published.unit),
        }
    }

    /// Our number as it is printed: the median, and the range.
    pub fn ours_text(&self) -> String {
        let (low, high) = (number(self.ours.low), number(self.ours.high));
        let median = self.in_unit(self.ours.median);
        if low == high { median } else { format!("{median} ({low} to {high})") }
    }

    /// The row as it is printed.
    pub(crate) fn print(&self) -> [String; 7] {
        let ratio = self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        let verdict = format!("{}{}", self.verdict.text(), self.basis.suffix());
        let fault = self.published.fault.filter(|_| self.verdict != Verdict::Agrees).map_or("", Fault::text);
        let (published, ours, rule) = (self.published_text(), self.ours_text(), self.published.rule_text());
        [self.published.what.clone(), published, ours, ratio, rule, verdict, fault.into()]
    }

    /// A number in the unit of the row, as it is printed.
    pub fn in_unit(&self, value: f64) -> String {
        with_unit(&number(value), &self.published.unit)
    }
}

fn with_unit(number: &str, unit: &str) -> String {
    if unit.is_empty() { number.to_string() } else { format!("{number} {unit}") }
}

/// Whole numbers with all digits, others with four digits.
fn number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return thousands(value as i64);
    }
    // Digits of the rounded number: 0.99999 has one digit before the point.
    let rounded = format!("{value:.3e}");
    let digits = rounded.rsplit_once('e').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(0);
    format!("{value:.*}", (3 - digits).clamp(0, 9) as usize)
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digits.len() > 4 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

impl Published {
    /// The row with a number of ours.
    pub fn row(&self, ours: Finding) -> Row {
        let verdict = self.rule.judge(self.value, ours);
        let is_limit = matches!(self.rule, Rule::AtLeast | Rule::AtMost);
        let ratio = (self.value != 0.0 && !is_limit).then(|| ours.median / self.value);
        let (published, basis) = (self.clone(), self.basis(verdict));
        let (cause, cells, elsewhere) = (None, Default::default(), Vec::new());
        let row = Row { published, basis, ours, ratio, verdict, cause, cells, elsewhere };
        Row { cells: row.print(), ..row }
    }

    /// The rule in words, and whether the limit is ours.
    pub fn rule_text(&self) -> String {
        let limit = with_unit(&number(self.value), &self.unit);
        let own = if self.own_limit { ", limit ours" } else { "" };
        match self.rule {
            Rule::Exact => "exact".into(),
            Rule::Rounded(0) => "rounded".into(),
            Rule::Rounded(decimals) => format!("rounded to {decimals}"),
            Rule::Within(share) => format!("within {} %, ours", number(100.0 * share)),
            Rule::AtLeast => format!("at least {limit}{own}"),
            Rule::AtMost => format!("at most {limit}{own}"),
        }
    }
}

/// A row with other values of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Elsewhere {
    /// The description of the values.
    pub with: String,
    /// What is measured with them.
    pub ours: Finding,
    /// The verdict on it.
    pub verdict: Verdict,
}

/// An experiment's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The experiment.
    pub id: String,
    /// What it is.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// True if it was run with the small inputs of its file.
    pub quick: bool,
    /// True if it was run with the paper's sizes, which its file makes smaller.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// Parameters that differ from the file: then no row says anything about the file.
    pub changes: Vec<Change>,
    /// Parameters that the paper leaves open and that were chosen with the rows in view.
    pub fitted: Vec<Setting>,
    /// Parameters that the paper leaves open and that were chosen without the rows.
    pub open: Vec<Setting>,
    /// The comparison.
    pub rows: Vec<Row>,
    /// Notes for readers.
    pub notes: Vec<String>,
    /// Published values without a row.
    pub left_out: Vec<String>,
    /// The pictures' data.
    pub figures: Vec<Figure>,
}

/// The rows of an experiment, and the published values that have none.
pub(crate) struct Judged {
    pub(crate) rows: Vec<Row>,
    pub(crate) left_out: Vec<String>,
}

/// Compares what was measured with what was published. A published key that the run does not know is an error of the
/// file, which the catalogue's tests find; but if parameters were changed, the row is left out, and a note says so.
pub(crate) fn judge(published: &[Published], is_changed: bool, findings: &Findings) -> Result<Judged, String> {
    let measured = |published: &&Published| !is_changed || findings.values.contains_key(&published.key);
    let (shown, unknown): (Vec<_>, Vec<_>) = published.iter().partition(measured);
    let unknown = unknown.into_iter().map(|published| format!("{}: not measured with the changes", published.what));
    let row = |published: &Published| {
        let ours = *findings.values.get(&published.key).ok_or_else(|| published.key.clone())?;
        let row = published.row(ours);
        let cause = findings.causes.get(&published.key).filter(|_| row.verdict != Verdict::Agrees).cloned();
        Ok(Row { cause, ..row })
    };
    Ok(Judged { rows: shown.into_iter().map(row).collect::<Result<_, String>>()?, left_out: unknown.collect() })
}

/// How many rows of each kind agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([[usize; 3]; 4]);

impl Tally {
    /// Adds rows.
    pub fn add(&mut self, rows: &[Row]) {
        for row in rows {
            self.0[row.basis as usize][row.verdict as usize] += 1;
        }
    }

    /// How many rows of a kind have a verdict.
    pub fn count(&self, basis: Basis, verdict: Verdict) -> usize {
        self.0[basis as usize][verdict as usize]
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = ["published and measured", "fitted", "by construction", "our own questions"];
        let texts = kinds.iter().zip(&self.0).filter(|(_, counts)| counts.iter().sum::<usize>() > 0).map(
            |(kind, counts @ [agree, partial, differ])| {
                let all = counts.iter().sum::<usize>();
                format!("{kind}: {agree} of {all} agree, {partial} in part, {differ} differ")
            },
        );
        write!(f, "{}", texts.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(3600.0), "3600");
        assert_eq!(number(104857600.0), "104,857,600");
        assert_eq!(number(62.7451), "62.75");
        assert_eq!(number(0.0123456), "0.01235");
        assert_eq!((&*number(0.99999), &*number(-12.345)), ("1.000", "-12.35"));
    }

    #[test]
    fn a_row_says_whose_fault_a_difference_is_and_nothing_where_it_agrees() {
        let text = "key = \"k\"\nwhat = \"w\"\nvalue = 2\nunit = \"x\"\nrule = { within = 0.1 }\nfault = \"input\"";
        let published: Published = toml::from_str(text).unwrap();
        let cells = |ours: f64| published.row(ours.into()).cells;
        assert_eq!(cells(3.0), ["w", "2 x", "3 x", "1.500", "within 10 %, ours", "differs", "input not published"]);
        assert_eq!(cells(2.0), ["w", "2 x", "2 x", "1.000", "within 10 %, ours", "agrees", ""]);
    }

    #[test]
    fn a_row_that_differs_counts_as_published_whatever_it_follows_from() {
        let text = "key = \"k\"\nwhat = \"w\"\nvalue = 2\nrule = \"exact\"";
        let basis = |more: &str, ours: f64| {
            let published = toml::from_str::<Published>(&format!("{text}\n{more}")).unwrap();
            published.row(ours.into()).basis
        };
        assert_eq!((basis("", 2.0), basis("", 3.0)), (Basis::Published, Basis::Published));
        let construction = "construction = \"a formula\"";
        assert_eq!((basis(construction, 2.0), basis(construction, 3.0)), (Basis::Construction, Basis::Published));
        assert_eq!((basis("fitted = true", 2.0), basis("fitted = true", 3.0)), (Basis::Fitted, Basis::Published));
        assert_eq!((basis("own = true", 2.0), basis("own = true", 3.0)), (Basis::Own, Basis::Own));
    }

    #[test]
    fn a_rule_in_words_says_whose_its_limit_is() {
        let text = "key = \"k\"\nwhat = \"w\"\nvalue = 2\nunit = \"%\"\nrule = \"at_most\"";
        let row = |more: &str| toml::from_str::<Published>(&format!("{text}\n{more}")).unwrap();
        assert_eq!(row("").rule_text(), "at most 2 %");
        assert_eq!(row("own_limit = true").rule_text(), "at most 2 %, limit ours");
        assert_eq!(Published { rule: Rule::Within(0.05), ..row("") }.rule_text(), "within 5 %, ours");
    }
}
