//! Compares measured numbers with published ones.

use serde::{Deserialize, Serialize};

use crate::finding::Finding;

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
    /// Why the limit is nearer than a factor of 1.2, although the paper's words speak of a large effect.
    #[serde(default)]
    pub limit_because: Option<String>,
    /// Why the row follows from a formula of the paper or from the choice of parameters, if it does.
    #[serde(default)]
    pub construction: Option<String>,
    /// A parameter that the paper leaves open was chosen because this row then agrees: `[[fitted]]` says which.
    #[serde(default)]
    pub fitted: bool,
    /// The question is ours: the paper does not ask it.
    #[serde(default)]
    pub own: bool,
    /// Where the cause lies if ours does not agree.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// Where ours lies in the picture, if it does: the published number is drawn beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Point>,
}

/// A point of a figure, at which the experiment's own number lies.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The name of the figure's line.
    pub line: String,
    /// The position on the x axis.
    pub x: f64,
}

/// The kind of a row. Rows of each kind are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A statement of the paper, measured; or one that differs, whatever it is.
    Published,
    /// A parameter was chosen because the row then agrees.
    Fitted,
    /// It follows from a formula of the paper, or from how parameters were chosen.
    Construction,
    /// A question of our own.
    Own,
}

impl Basis {
    /// What stands behind a verdict on such a row.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Basis::Published => "",
            Basis::Fitted => ", fitted",
            Basis::Construction => ", by construction",
            Basis::Own => ", our question",
        }
    }
}

/// Where the cause of a difference lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The paper contradicts itself, or its formula does not give its number.
    Paper,
    /// A trace, a data set or a setting of the paper is not published.
    Input,
    /// Our model, its size, or our code.
    Model,
}

impl Fault {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Fault::Paper => "the paper's own error",
            Fault::Input => "input not published",
            Fault::Model => "our model",
        }
    }
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All of our range keeps the rule.
    Agrees,
    /// The median keeps the rule, and some of the range does not. Where most seeds keep it, the median is among them.
    Partial,
    /// The median does not keep the rule.
    Differs,
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Partial => "in part",
            Verdict::Differs => "differs",
        }
    }
}

impl Rule {
    /// Whether a number keeps the rule.
    fn keeps(self, published: f64, ours: f64) -> bool {
        match self {
            Rule::Exact => ours == published,
            // Compared as printed, so that halves are rounded as in printing.
            Rule::Rounded(decimals) => {
                let scale = 10f64.powi(decimals as i32);
                (ours * scale).round() == (published * scale).round()
            }
            Rule::Within(share) => (ours - published).abs() <= share * published.abs(),
            Rule::AtLeast => ours >= published,
            Rule::AtMost => ours <= published,
        }
    }

    pub(crate) fn judge(self, published: f64, ours: Finding) -> Verdict {
        let keeps = |value| self.keeps(published, value);
        match (keeps(ours.low) && keeps(ours.high), keeps(ours.median)) {
            (true, _) => Verdict::Agrees,
            (false, true) => Verdict::Partial,
            (false, false) => Verdict::Differs,
        }
    }
}

impl Published {
    /// The kind of the row: one that differs is never counted as fitted or as following by construction.
    pub(crate) fn basis(&self, verdict: Verdict) -> Basis {
        match (self.own, verdict, &self.construction, self.fitted) {
            (true, ..) => Basis::Own,
            (false, Verdict::Differs, ..) | (false, _, None, false) => Basis::Published,
            (false, _, Some(_), _) => Basis::Construction,
            (false, _, None, true) => Basis::Fitted,
        }
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
    fn a_range_agrees_as_a_whole_or_partially_by_its_median() {
        let range = Finding::over("seeds", &[1.0, 1.5, 2.0]);
        for (rule, published, verdict) in [
            (Rule::Within(0.5), 1.5, Verdict::Agrees),
            (Rule::Within(0.05), 1.5, Verdict::Partial),
            // The range reaches into the rule, and its median does not.
            (Rule::Within(0.05), 2.05, Verdict::Differs),
            (Rule::Within(0.05), 2.5, Verdict::Differs),
            (Rule::AtLeast, 1.0, Verdict::Agrees),
            (Rule::AtLeast, 1.5, Verdict::Partial),
            (Rule::AtLeast, 1.6, Verdict::Differs),
            (Rule::AtMost, 1.5, Verdict::Partial),
            (Rule::AtMost, 1.4, Verdict::Differs),
            (Rule::Exact, 1.5, Verdict::Partial),
            (Rule::Exact, 2.0, Verdict::Differs),
            (Rule::Rounded(0), 2.0, Verdict::Partial),
            (Rule::Rounded(0), 1.0, Verdict::Differs),
        ] {
            assert_eq!(rule.judge(published, range), verdict, "{rule:?} of {published}");
        }
    }

    #[test]
    fn where_most_seeds_keep_a_rule_the_median_does() {
        // Every choice of three of five seeds inside the limits, with the others below, above, or one on each side.
        for outside in [[0.1, 0.2], [0.1, 9.0], [8.0, 9.0]] {
            let seeds = [1.0, 1.1, 1.2, outside[0], outside[1]];
            assert_eq!(Rule::Within(0.2).judge(1.0, Finding::over("seeds", &seeds)), Verdict::Partial, "{seeds:?}");
        }
        assert_eq!(Rule::Within(0.2).judge(1.0, Finding::over("seeds", &[1.0, 1.1, 7.0, 8.0, 9.0])), Verdict::Differs);
    }
}
