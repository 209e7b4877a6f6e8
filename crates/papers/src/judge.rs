//! Compares measured numbers with published ones.

use serde::{Deserialize, Serialize};

use crate::finding::{Figure, Finding, Findings};
use crate::paper::{Change, Setting};

/// How a measured number is compared with a published one.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The same number.
    Exact,
    /// The same when rounded to this many decimals, as it was printed.
    Rounded(u32),
    /// Within this share of the published number.
    Within(f64),
    /// Not below it.
    AtLeast,
    /// Not above it.
    AtMost,
}

/// One published number or statement.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The key of the experiment's own number.
    pub key: String,
    /// A description.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit; a percent sign if it is a share of 100.
    #[serde(default)]
    pub unit: String,
    /// The paper's words, if it gives no number.
    #[serde(default)]
    pub says: Option<String>,
    /// The rule by which ours agrees.
    pub rule: Rule,
    /// The limit is ours, because the paper's words give none. (A tolerance is always ours.)
    #[serde(default)]
    pub own_limit: bool,
    /// Why the row follows from a formula of the paper or from the choice of parameters, if it does.
    #[serde(default)]
    pub construction: Option<String>,
    /// The question is ours: the paper does not ask it.
    #[serde(default)]
    pub own: bool,
}

/// The kind of a row. Rows of each kind are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A statement of the paper, measured.
    Published,
    /// It follows from a formula of the paper, or from how parameters were chosen.
    Construction,
    /// A question of our own.
    Own,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All of our range keeps the rule.
    Agrees,
    /// Some of our range keeps the rule.
    Partial,
    /// None of our range keeps the rule.
    Differs,
}

impl Rule {
    /// The least and the greatest number that keep the rule, if these are a range.
    fn bounds(self, published: f64) -> (f64, f64) {
        match self {
            Rule::Exact => (published, published),
            Rule::Rounded(decimals) => {
                let half = 0.5 / 10f64.powi(decimals as i32);
                (published - half, published + half)
            }
            Rule::Within(share) => (published - share * published.abs(), published + share * published.abs()),
            Rule::AtLeast => (published, f64::INFINITY),
            Rule::AtMost => (f64::NEG_INFINITY, published),
        }
    }

    fn judge(self, published: f64, ours: Finding) -> Verdict {
        let (least, most) = self.bounds(published);
        let keeps = |value: f64| match self {
            // Formatted as printed, so that halves are rounded as in printing.
            Rule::Rounded(decimals) => {
                let scale = 10f64.powi(decimals as i32);
                (value * scale).round() == (published * scale).round()
            }
            _ => value >= least && value <= most,
        };
        match (keeps(ours.low) && keeps(ours.high), ours.low <= most && ours.high >= least) {
            (true, _) => Verdict::Agrees,
            (false, true) => Verdict::Partial,
            (false, false) => Verdict::Differs,
        }
    }
}

impl Published {
    /// The kind of the row.
    pub fn basis(&self) -> Basis {
        match (self.own, &self.construction) {
            (true, _) => Basis::Own,
            (false, Some(_)) => Basis::Construction,
            (false, None) => Basis::Published,
        }
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
        let verdict = published.rule.judge(published.value, ours);
        let cause = findings.causes.get(&published.key).filter(|_| verdict != Verdict::Agrees).cloned();
        let is_limit = matches!(published.rule, Rule::AtLeast | Rule::AtMost);
        let ratio = (published.value != 0.0 && !is_limit).then(|| ours.median / published.value);
        let (published, basis) = (published.clone(), published.basis());
        Ok(Row { published, basis, ours, ratio, verdict, cause, elsewhere: Vec::new() })
    };
    Ok(Judged { rows: shown.into_iter().map(row).collect::<Result<_, String>>()?, left_out: unknown.collect() })
}

/// How many rows of each kind agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([[usize; 3]; 3]);

impl Tally {
    /// Adds an experiment's rows.
    pub fn add(&mut self, outcome: &Outcome) {
        for row in &outcome.rows {
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
        let kinds = ["published and measured", "by construction", "our own questions"];
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
    fn rules_mean_what_they_say() {
        let judge = |rule: Rule, published: f64, ours: f64| rule.judge(published, ours.into()) == Verdict::Agrees;
        assert!(judge(Rule::Exact, 240.0, 240.0) && !judge(Rule::Exact, 240.0, 241.0));
        assert!(judge(Rule::Rounded(0), 63.0, 62.7) && !judge(Rule::Rounded(0), 63.0, 63.6));
        // A quarter is exact in binary, so this is exactly the limit.
        assert!(judge(Rule::Within(0.25), 1.0, 1.25) && !judge(Rule::Within(0.25), 1.0, 1.26));
        assert!(judge(Rule::Within(0.25), -40.0, -50.0) && !judge(Rule::Within(0.25), -40.0, -51.0));
        assert!(judge(Rule::AtLeast, 98.0, 98.0) && !judge(Rule::AtLeast, 98.0, 97.9));
        assert!(judge(Rule::AtMost, 1.1, 1.0) && !judge(Rule::AtMost, 1.1, 1.2));
    }

    #[test]
    fn a_range_agrees_as_a_whole_or_partially() {
        let range = Finding::over("seeds", &[1.0, 2.0]);
        for (rule, published, verdict) in [
            (Rule::Within(0.5), 1.5, Verdict::Agrees),
            (Rule::Within(0.05), 1.5, Verdict::Partial),
            (Rule::Within(0.05), 2.05, Verdict::Partial),
            (Rule::Within(0.05), 2.5, Verdict::Differs),
            (Rule::AtLeast, 1.0, Verdict::Agrees),
            (Rule::AtLeast, 1.5, Verdict::Partial),
            (Rule::AtLeast, 2.5, Verdict::Differs),
            (Rule::AtMost, 1.5, Verdict::Partial),
            (Rule::AtMost, 0.5, Verdict::Differs),
            (Rule::Exact, 2.0, Verdict::Partial),
            (Rule::Rounded(0), 1.0, Verdict::Partial),
            (Rule::Rounded(0), 3.0, Verdict::Differs),
        ] {
            assert_eq!(rule.judge(published, range), verdict, "{rule:?} of {published}");
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(3600.0), "3600");
        assert_eq!(number(104857600.0), "104,857,600");
        assert_eq!(number(62.7451), "62.75");
        assert_eq!(number(0.0123456), "0.01235");
        assert_eq!((&*number(0.99999), &*number(-12.345)), ("1.000", "-12.35"));
    }

    #[test]
    fn a_rule_in_words_says_whose_its_limit_is() {
        let text = "key = \"k\"\nwhat = \"w\"\nvalue = 2\nunit = \"%\"\nrule = \"at_most\"";
        let row = |more: &str| toml::from_str::<Published>(&format!("{text}\n{more}")).unwrap();
        assert_eq!((row("").rule_text(), row("").basis()), ("at most 2 %".into(), Basis::Published));
        assert_eq!(row("own_limit = true").rule_text(), "at most 2 %, limit ours");
        assert_eq!(row("construction = \"a formula\"").basis(), Basis::Construction);
        assert_eq!(row("own = true").basis(), Basis::Own);
        assert_eq!(Published { rule: Rule::Within(0.05), ..row("") }.rule_text(), "within 5 %, ours");
    }
}
