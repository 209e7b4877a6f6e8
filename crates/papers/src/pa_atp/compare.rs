//! Findings that follow from several lines and points, seed by seed.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::finding::mean;
use crate::{Finding, Findings, ReproduceError};

/// The name of the best of all other lines, seed by seed.
const BEST: &str = "best";

/// A line compared with another, or with itself at another point.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The finding's name.
    pub key: String,
    /// The line that is compared.
    pub of: String,
    /// The line that it is compared with, or "best": the least of all others.
    pub than: String,
    /// The figure that is compared.
    #[serde(default = "ajct")]
    pub what: String,
    /// The point; if left out, the point at which the finding is greatest: the paper's "up to".
    #[serde(default)]
    pub at: Option<String>,
    /// The other line's point, if it differs.
    #[serde(default)]
    pub than_at: Option<String>,
    /// How they are compared.
    #[serde(default)]
    pub by: By,
    /// If no point is named: whether the greatest or the least of all points' findings counts.
    #[serde(default)]
    pub pick: Pick,
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// By how many percent the first is less than the second.
    #[default]
    Less,
    /// The first divided by the second.
    Ratio,
}

/// The choice among points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The greatest.
    #[default]
    Greatest,
    /// The least.
    Least,
}

fn ajct() -> String {
    "ajct".into()
}

/// Values by line, point and name, one for each seed.
#[derive(Default)]
pub struct Samples(BTreeMap<(String, String, String), Vec<f64>>);

impl Samples {
    /// Keeps the values of all seeds.
    pub fn put(&mut self, line: &str, label: &str, what: &str, values: Vec<f64>) {
        self.0.insert((line.into(), label.into(), what.into()), values);
    }

    /// The values of all seeds.
    pub fn get(&self, line: &str, label: &str, what: &str) -> Option<&[f64]> {
        self.0.get(&(line.into(), label.into(), what.into())).map(Vec::as_slice)
    }

    /// The least of all lines except one, seed by seed.
    fn best_but(&self, line: &str, label: &str, what: &str) -> Option<Vec<f64>> {
        let of_others = |(other, at, name): &(String, String, String)| other != line && at == label && name == what;
        let others = self.0.iter().filter(|(key, _)| of_others(key)).map(|(_, values)| values.clone());
        others.reduce(|best, other| best.iter().zip(&other).map(|(a, b)| a.min(*b)).collect())
    }
}

impl Compare {
    /// Checks that the lines and points exist, before hours of runs and not after them.
    pub fn check(&self, lines: &[&str], labels: &[String]) -> Result<(), ReproduceError> {
        let compared = [&self.of, &self.than].into_iter().filter(|&name| name != BEST);
        let no_line = compared.filter(|name| !lines.contains(&name.as_str())).map(|name| format!("line \"{name}\""));
        let points = [&self.at, &self.than_at].into_iter().flatten();
        let no_point = points.filter(|at| !labels.contains(at)).map(|at| format!("point \"{at}\""));
        match no_line.chain(no_point).next() {
            Some(what) => Err(ReproduceError::Bad(format!("\"{}\" compares {what}, which is not there", self.key))),
            None => Ok(()),
        }
    }

    /// Adds the finding, and the values that it comes from.
    pub fn report(&self, labels: &[String], samples: &Samples, findings: &mut Findings) -> Result<(), ReproduceError> {
        let points: Vec<&String> = self.at.as_ref().map_or_else(|| labels.iter().collect(), |at| vec![at]);
        let missing = || ReproduceError::Bad(format!("\"{}\" compares what no line has at any point", self.key));
        let pairs = points.iter().map(|at| self.pairs(at, samples)).collect::<Option<Vec<_>>>().ok_or_else(missing)?;
        let chosen = |seed: usize| {
            let values = pairs.iter().map(|pairs| self.value(pairs[seed]));
            match self.pick {
                Pick::Greatest => values.fold(f64::NEG_INFINITY, f64::max),
                Pick::Least => values.fold(f64::INFINITY, f64::min),
            }
        };
        let seeds = pairs.first().map_or(0, Vec::len);
        findings.value(self.key.as_str(), Finding::over("seeds", &(0..seeds).map(chosen).collect::<Vec<f64>>()));
        let values = points.iter().zip(&pairs).map(|(at, pairs)| {
            let [of, than] = [0, 1].map(|which| mean(&pairs.iter().map(|pair| pair[which]).collect::<Vec<_>>()));
            format!("{at}: {of:.3} against {than:.3}")
        });
        findings.cause(self.key.as_str(), values.collect::<Vec<_>>().join("; "));
        Ok(())
    }

    /// The two values of each seed.
    fn pairs(&self, at: &str, samples: &Samples) -> Option<Vec<[f64; 2]>> {
        let of = samples.get(&self.of, at, &self.what)?;
        let other = self.than_at.as_deref().unwrap_or(at);
        let than = match self.than == BEST {
            true => samples.best_but(&self.of, other, &self.what)?,
            false => samples.get(&self.than, other, &self.what)?.to_vec(),
        };
        Some(of.iter().zip(than).map(|(&of, than)| [of, than]).collect())
    }

    fn value(&self, [of, than]: [f64; 2]) -> f64 {
        match self.by {
            By::Less => 100.0 * (1.0 - of / than),
            By::Ratio => of / than,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Samples {
        let mut samples = Samples::default();
        for (line, at, values) in [
            ("a", "1", [10.0, 20.0]),
            ("a", "2", [10.0, 10.0]),
            ("b", "1", [20.0, 20.0]),
            ("b", "2", [40.0, 20.0]),
            ("c", "1", [12.5, 80.0]),
            ("c", "2", [12.5, 80.0]),
        ] {
            samples.put(line, at, "ajct", values.to_vec());
        }
        samples
    }

    fn range(text: &str) -> [f64; 2] {
        let compare: Compare = toml::from_str(&format!("key = \"k\"\nof = \"a\"\n{text}")).unwrap();
        let mut findings = Findings::default();
        compare.report(&["1".into(), "2".into()], &samples(), &mut findings).unwrap();
        [findings.values["k"].low, findings.values["k"].high]
    }

    #[test]
    fn lines_are_compared_seed_by_seed() {
        assert_eq!(range("than = \"b\"\nat = \"1\""), [0.0, 50.0]);
        assert_eq!(range("than = \"b\""), [50.0, 75.0], "up to: 75 % and 50 %, both at the second point");
        assert_eq!(range("than = \"b\"\npick = \"least\""), [0.0, 50.0]);
        assert_eq!(range("than = \"best\"\nat = \"1\"\nby = \"ratio\""), [0.8, 1.0], "c, and then b");
        assert_eq!(range("than = \"a\"\nat = \"1\"\nthan_at = \"2\"\nby = \"ratio\""), [1.0, 2.0]);
    }

    #[test]
    fn lines_and_points_that_are_not_there_are_named_before_any_run() {
        let check = |text: &str| {
            let compare: Compare = toml::from_str(&format!("key = \"k\"\nof = \"a\"\n{text}")).unwrap();
            compare.check(&["a", "b"], &["1".into(), "2".into()]).map_err(|error| error.to_string())
        };
        for text in ["than = \"b\"", "than = \"best\"", "than = \"a\"\nat = \"1\"\nthan_at = \"2\""] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        assert!(check("than = \"d\"").unwrap_err().contains("\"k\" compares line \"d\", which is not there"));
        assert!(check("than = \"b\"\nthan_at = \"3\"").unwrap_err().contains("\"k\" compares point \"3\", which"));
    }

    #[test]
    fn what_no_line_has_is_an_error() {
        let compare: Compare = toml::from_str("key = \"k\"\nof = \"a\"\nthan = \"b\"\nwhat = \"d\"").unwrap();
        assert!(compare.report(&["1".into()], &samples(), &mut Findings::default()).is_err());
    }
}
