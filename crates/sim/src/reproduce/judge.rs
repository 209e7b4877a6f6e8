//! Holds what was measured against what was published.

use serde::{Deserialize, Serialize};

use super::catalogue::{Change, Entry};
use super::finding::{Figure, Finding, Findings};

/// How a measured number is held against a published one.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The same number.
    Exact,
    /// The same when rounded to so many decimals, as it was printed.
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
    /// Under which the experiment gives its own number.
    pub key: String,
    /// What it is.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit; a percent sign if it is a share of 100.
    #[serde(default)]
    pub unit: String,
    /// The paper's words, where it gives no number.
    #[serde(default)]
    pub says: Option<String>,
    /// When ours agrees.
    pub rule: Rule,
}

/// What came of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Ours keeps the rule.
    Agrees,
    /// It does not.
    Differs,
}

impl Rule {
    fn judge(self, published: f64, ours: Finding) -> Verdict {
        let nearest = ours.nearest(published);
        let agrees = match self {
            Rule::Exact => ours.low == published && ours.high == published,
            Rule::Rounded(decimals) => {
                let scale = 10f64.powi(decimals as i32);
                (nearest * scale).round() == (published * scale).round()
            }
            Rule::Within(share) => (nearest - published).abs() <= share * published.abs(),
            Rule::AtLeast => ours.low >= published,
            Rule::AtMost => ours.high <= published,
        };
        if agrees { Verdict::Agrees } else { Verdict::Differs }
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was published, and the rule.
    #[serde(flatten)]
    pub published: Published,
    /// What we measured.
    pub ours: Finding,
    /// Ours over theirs; of a range the value nearest to theirs.
    pub ratio: Option<f64>,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Why not, as far as the run could measure it.
    pub cause: Option<String>,
}

impl Row {
    /// The published number as it is printed.
    pub fn published_text(&self) -> String {
        match &self.published.says {
            Some(says) => says.clone(),
            None => with_unit(&number(self.published.value), &self.published.unit),
        }
    }

    /// Our number as it is printed.
    pub fn ours_text(&self) -> String {
        let (low, high) = (number(self.ours.low), number(self.ours.high));
        let text = if low == high { low } else { format!("{low} to {high}") };
        with_unit(&text, &self.published.unit)
    }
}

fn with_unit(number: &str, unit: &str) -> String {
    if unit.is_empty() { number.to_string() } else { format!("{number} {unit}") }
}

/// Whole numbers in full, others with four digits.
fn number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return thousands(value as i64);
    }
    let digits = value.abs().log10().floor() as i32;
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

/// An experiment's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The experiment.
    pub id: String,
    /// What it is.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// It was run with the small inputs of its file.
    pub quick: bool,
    /// Parameters that were not what the file says: then no row tells anything about the file.
    pub changes: Vec<Change>,
    /// The comparison.
    pub rows: Vec<Row>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// What was published and no row shows.
    pub left_out: Vec<String>,
    /// The pictures' data.
    pub figures: Vec<Figure>,
}

impl Outcome {
    /// Judges what an entry's run has found. A published key that the run does not know is a bug of the file, which
    /// the catalogue's tests find, unless parameters were changed: then the row is left out, and said to be.
    pub(super) fn new(entry: &Entry, quick: bool, changes: Vec<Change>, findings: Findings) -> Result<Outcome, String> {
        let measured = |published: &&Published| changes.is_empty() || findings.values.contains_key(&published.key);
        let (shown, unknown): (Vec<_>, Vec<_>) = entry.published.iter().partition(measured);
        let unknown = unknown.into_iter().map(|published| format!("{}: not measured with the changes", published.what));
        let row = |published: &Published| {
            let ours = *findings.values.get(&published.key).ok_or_else(|| published.key.clone())?;
            let verdict = published.rule.judge(published.value, ours);
            let cause = findings.causes.get(&published.key).filter(|_| verdict == Verdict::Differs).cloned();
            let ratio = (published.value != 0.0).then(|| ours.nearest(published.value) / published.value);
            Ok(Row { published: published.clone(), ours, ratio, verdict, cause })
        };
        Ok(Outcome {
            id: entry.id.clone(),
            title: entry.title.clone(),
            source: entry.source.clone(),
            quick,
            rows: shown.into_iter().map(row).collect::<Result<_, String>>()?,
            left_out: entry.left_out.iter().cloned().chain(unknown).collect(),
            changes,
            notes: findings.notes,
            figures: findings.figures,
        })
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
        // A quarter is exact in binary, so this is the very edge.
        assert!(judge(Rule::Within(0.25), 1.0, 1.25) && !judge(Rule::Within(0.25), 1.0, 1.26));
        assert!(judge(Rule::AtLeast, 98.0, 98.0) && !judge(Rule::AtLeast, 98.0, 97.9));
        assert!(judge(Rule::AtMost, 1.1, 1.0) && !judge(Rule::AtMost, 1.1, 1.2));
    }

    #[test]
    fn a_range_agrees_where_it_comes_near_enough_but_keeps_limits_as_a_whole() {
        let range = Finding { low: 1.0, high: 2.0 };
        assert_eq!(Rule::Within(0.05).judge(1.5, range), Verdict::Agrees);
        assert_eq!(Rule::Within(0.05).judge(2.05, range), Verdict::Agrees);
        assert_eq!(Rule::Within(0.05).judge(2.5, range), Verdict::Differs);
        assert_eq!(Rule::AtLeast.judge(1.5, range), Verdict::Differs);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(3600.0), "3600");
        assert_eq!(number(104857600.0), "104,857,600");
        assert_eq!(number(62.7451), "62.75");
        assert_eq!(number(0.0123456), "0.01235");
    }
}
