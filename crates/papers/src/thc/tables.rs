//! The levels that stand for codes: for each published table, how many other tables of as many levels err less, and where
//! the rotated elements are clipped.
//!
//! A rotated element is as a normal number. One that lies between two levels becomes one of them, at random and without
//! bias, which errs by `(x - a)(b - x)` on average. Which numbers are clipped, and by how much, is the same for all tables
//! with the same ends.

use serde::Deserialize;
use tributary_numeric::thc;

use crate::{Context, Experiment, Findings, ReproduceError};

/// The tables.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tables {
    /// Each of them; the first is the one that the machines have to have.
    pub tables: Vec<Table>,
}

/// A symmetrical table of levels.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The lower half of its levels, the first of which is 0; the upper half is the mirror image.
    pub lower: Vec<u16>,
    /// The last level.
    pub granularity: u16,
    /// One of this many normal numbers is clipped ...
    pub one_of: u32,
    /// ... at this many standard deviations, to six digits behind the point.
    pub clip: f64,
}

impl Experiment for Tables {
    /// `beaten`, the tables than which another errs less; `clips`, those whose share is not clipped where they say; and for
    /// the machines `levels`, how many of theirs are not those of the first table, and `clip`, theirs over that of the first.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let counts = context.watch.all(&self.tables, Table::better)?;
        let mut findings = Findings::default();
        let causes: Vec<String> =
            self.tables.iter().zip(&counts).map(|(table, count)| table.beaten_by(count)).collect();
        findings.cause("beaten", causes.join("; "));
        findings.value("beaten", counts.iter().filter(|(better, _)| *better > 0).count() as f64);
        let elsewhere = self.tables.iter().filter(|table| (clip(table.one_of) - table.clip).abs() > 5e-7);
        findings.value("clips", elsewhere.count() as f64);
        let first = self.tables.first().ok_or_else(|| ReproduceError::Bad("`tables` is empty".into()))?;
        let theirs = first.levels();
        let same = thc::LEVELS.iter().zip(&theirs).filter(|&(&ours, &theirs)| u16::from(ours) == theirs).count();
        findings.value("levels", (thc::LEVELS.len().max(theirs.len()) - same) as f64);
        findings.value("clip", f64::from(thc::CLIP) / clip(first.one_of));
        Ok(findings)
    }
}

impl Table {
    fn levels(&self) -> Vec<u16> {
        let upper = self.lower.iter().rev().map(|level| self.granularity - level);
        self.lower.iter().copied().chain(upper).collect()
    }

    /// Says how many others err less.
    fn beaten_by(&self, (better, all): &(u32, u32)) -> String {
        let (levels, up_to, one_of) = (2 * self.lower.len(), self.granularity, self.one_of);
        format!("{levels} levels up to {up_to}, one of {one_of} clipped: {better} of {all} tables err less")
    }

    /// How many tables with the same ends and as many levels err less, and how many tables there are. The middle may be
    /// there twice.
    fn better(&self) -> Result<(u32, u32), ReproduceError> {
        let is_table = self.lower.first() == Some(&0)
            && self.lower.is_sorted_by(|a, b| a < b)
            && self.lower.last().is_some_and(|&last| 2 * last <= self.granularity);
        if !is_table || self.one_of < 3 {
            let why = "a table has levels from 0 to at most the middle, and clips one of three or more numbers";
            return Err(ReproduceError::Bad(why.into()));
        }
        let errors = Errors::new(self.granularity.into(), clip(self.one_of));
        let lower: Vec<usize> = self.lower.iter().map(|&level| level.into()).collect();
        let ours = errors.of(&lower);
        let (mut better, mut all) = (0, 0);
        errors.each(&mut vec![0], lower.len(), &mut |error| {
            all += 1;
            // Not what the last bits of a sum make of the same table.
            better += u32::from(error < ours * (1.0 - 1e-9));
        });
        Ok((better, all))
    }
}

/// Where normal numbers are clipped so that one of this many is, half of them on each side.
fn clip(one_of: u32) -> f64 {
    let (mut inside, mut outside) = (0.0, 10.0);
    for _ in 0..60 {
        let middle = f64::midpoint(inside, outside);
        if 2.0 * mass(0.0, middle) < 1.0 - 1.0 / f64::from(one_of) { inside = middle } else { outside = middle }
    }
    f64::midpoint(inside, outside)
}

fn density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

/// The share of normal numbers between these two, by Simpson's rule.
fn mass(from: f64, to: f64) -> f64 {
    const STEPS: u32 = 256;
    let width = (to - from) / f64::from(STEPS);
    let weight = |step| if step == 0 || step == STEPS { 1.0 } else { 2.0 * f64::from(1 + step % 2) };
    (0..=STEPS).map(|step| weight(step) * density(from + f64::from(step) * width)).sum::<f64>() * width / 3.0
}

/// The error between each two levels, for normal numbers.
struct Errors {
    granularity: usize,
    between: Vec<Vec<f64>>,
}

impl Errors {
    fn new(granularity: usize, clip: f64) -> Errors {
        let at = |level: usize| clip * (2.0 * level as f64 / granularity as f64 - 1.0);
        let between = |a: usize, b: usize| {
            let (a, b) = (at(a), at(b));
            // The integrals of the density times 1, x and x^2.
            let (ones, first) = (mass(a, b), density(a) - density(b));
            let second = ones + a * density(a) - b * density(b);
            (a + b) * first - a * b * ones - second
        };
        let row = |a| (0..=granularity).map(|b| if a < b { between(a, b) } else { 0.0 }).collect();
        Errors { granularity, between: (0..=granularity).map(row).collect() }
    }

    /// The error of a table with this lower half.
    fn of(&self, lower: &[usize]) -> f64 {
        let last = lower[lower.len() - 1];
        let half: f64 = lower.windows(2).map(|pair| self.between[pair[0]][pair[1]]).sum();
        2.0 * half + self.between[last][self.granularity - last]
    }

    /// Calls `each` with the error of each table whose lower half begins so and has `levels` levels.
    fn each(&self, lower: &mut Vec<usize>, levels: usize, each: &mut impl FnMut(f64)) {
        if lower.len() == levels {
            return each(self.of(lower));
        }
        let to_come = levels - lower.len() - 1;
        for level in lower[lower.len() - 1] + 1..=(self.granularity / 2).saturating_sub(to_come) {
            lower.push(level);
            self.each(lower, levels, each);
            lower.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_not_the_best_is_found_out_and_what_is_not_a_table_is_refused() {
        let table = |lower: &[u16]| Table { lower: lower.to_vec(), granularity: 34, one_of: 512, clip: 3.097_269 };
        assert_eq!(table(&[0, 13]).better(), Ok((0, 17)));
        assert_eq!(table(&[0, 12]).better(), Ok((1, 17)));
        assert!(table(&[0, 1]).better().is_ok_and(|(better, _)| better > 10));
        for lower in [&[][..], &[1, 2], &[0, 0], &[0, 18]] {
            assert!(table(lower).better().is_err(), "{lower:?}");
        }
    }

    #[test]
    fn shares_of_normal_numbers_are_those_of_tables() {
        // Simpson's rule errs by some h^4 / 75 here, with steps of h.
        assert!((mass(-1.0, 1.0) - 0.682_689_492_137).abs() < 1e-10);
        // Between levels of which all numbers are one, nothing errs; a wide step errs as the numbers' own variance.
        let errors = Errors::new(2, 8.0);
        assert!((errors.of(&[0]) - (64.0 - 1.0)).abs() < 1e-9);
    }
}
