//! SwitchML's appendix E, theorems 1 and 2: the error of fixed-point sums, and that they never overflow.

use serde::Deserialize;
use tributary_numeric::{BlockExponent, ReduceOp, Scale, codec};
use tributary_proto::contract::config::TimerConfig;
use tributary_sim::rng::{Purpose, Rng};

use super::bench::Bench;
use crate::finding::{Figure, Finding, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// The sums.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Theorem {
    /// Ranks, for each run.
    pub workers: Vec<u16>,
    /// Elements of a block.
    pub elements_per_packet: u16,
    /// Blocks of random numbers for each number of workers and each seed.
    pub blocks: u32,
}

/// The measurements of one block's sum.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Greatest error divided by theorem 1's bound `n/f`.
    error: f64,
    /// Greatest sum divided by 2^31.
    sum: f64,
    /// Our `f` divided by the greatest that theorem 2 allows, `(2^31 - n) / (n B)`.
    scale: f64,
}

impl Seen {
    fn greatest(self, other: Seen) -> Seen {
        Seen { error: self.error.max(other.error), sum: self.sum.max(other.sum), scale: self.scale.max(other.scale) }
    }
}

impl Experiment for Theorem {
    /// Findings `error`, `sum` and `scale`: the greatest of each in [`Seen`], for each number of workers.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let points: Vec<(u16, u64)> =
            self.workers.iter().flat_map(|&n| (1..=context.seeds).map(move |seed| (n, seed))).collect();
        let seen = context.watch.all(&points, |&(n, seed)| self.measure(n, seed))?;
        let greatest = |n: u16| {
            let of = points.iter().zip(&seen).filter(|((workers, _), _)| *workers == n);
            of.fold(Seen::default(), |greatest, (_, &seen)| greatest.greatest(seen))
        };
        let each: Vec<Seen> = self.workers.iter().map(|&n| greatest(n)).collect();
        let mut findings = Findings::default();
        type Reading = fn(&Seen) -> f64;
        let figures: [(&str, &str, Reading); 3] = [
            ("error", "error over n/f", |seen| seen.error),
            ("sum", "greatest sum over 2^31", |seen| seen.sum),
            ("scale", "f over its limit", |seen| seen.scale),
        ];
        let mut series = Vec::new();
        for (key, name, of) in figures {
            let values: Vec<f64> = each.iter().map(of).collect();
            findings.value(key, Finding::over("workers", &values));
            let by_workers = self.workers.iter().zip(&values).map(|(&n, &value)| [f64::from(n), value]);
            series.push(Series::new(name, by_workers.collect()));
        }
        findings.note(format!(
            "Each of {} blocks of {} elements for each number of workers ({:?}) and each of {} seeds went through the \
             machines; the switch's integers, divided by f, are compared with sums in binary64. Ranges are over the numbers \
             of workers. Of the blocks one in four has every element at the limit B, with the same sign.",
            self.blocks, self.elements_per_packet, self.workers, context.seeds
        ));
        findings.note(
            "Our f is the greatest power of two below the paper's (2^31-1)/(n 2^m), so that scaling itself is exact; B is the \
             block's greatest magnitude rounded up to a power of two, 2^m.",
        );
        findings.figures.push(Figure {
            title: "Bounds of theorems 1 and 2: 1 is the limit".into(),
            x: "workers".into(),
            y: "share of the limit".into(),
            log_x: true,
            series,
            marks: Vec::new(),
        });
        Ok(findings)
    }
}

impl Theorem {
    fn measure(&self, n: u16, seed: u64) -> Result<Seen, ReproduceError> {
        let mut rng = Rng::new(seed, Purpose::Numbers, n.into());
        let mut bench = Bench::new(n, 1, self.elements_per_packet, "fixed", TimerConfig::default())?;
        let mut seen = Seen::default();
        for block in 0..self.blocks {
            // From near the denormals to far above gradients' magnitudes.
            let magnitude = 2f32.powi(rng.below(200) as i32 - 100);
            let inputs = (0..n).map(|_| self.vector(&mut rng, magnitude, block % 4 == 0)).collect();
            seen = seen.greatest(sum_of(&mut bench, inputs)?);
        }
        Ok(seen)
    }

    /// One worker's elements: either all at the limit, or anywhere below it, most of them far below. Those are rounded,
    /// whereas the others are multiples of `1/f` already.
    fn vector(&self, rng: &mut Rng, magnitude: f32, at_limit: bool) -> Vec<f32> {
        let element = |rng: &mut Rng| match at_limit {
            true => magnitude,
            false => magnitude * 2f32.powi(-(rng.below(24) as i32)) * (2.0 * rng.unit() as f32 - 1.0),
        };
        (0..self.elements_per_packet).map(|_| element(rng)).collect()
    }
}

/// Sums a block, and compares the switch's integers with the theorems.
fn sum_of(bench: &mut Bench, inputs: Vec<Vec<f32>>) -> Result<Seen, ReproduceError> {
    let n = inputs.len() as u16;
    let block = inputs.iter().fold(BlockExponent::ZERO, |block, input| block.join(codec::exponent(input)));
    let exact: Vec<f64> =
        (0..inputs[0].len()).map(|i| inputs.iter().map(|input| f64::from(input[i])).sum::<f64>()).collect();
    bench.allreduce(inputs, ReduceOp::Sum)?;
    let f = 2f64.powi(Scale::new(block, n).shift);
    let limit = 2f64.powi(block.exponent.into());
    let bound = block.paper_bound(n);
    let mut seen = Seen { scale: f * f64::from(n) * limit / (2f64.powi(31) - f64::from(n)), ..Seen::default() };
    for (&integer, &exact) in bench.last_sum.iter().zip(&exact) {
        let integer = f64::from(integer);
        seen.error = seen.error.max((integer / f - exact).abs() / bound);
        seen.sum = seen.sum.max(integer.abs() / 2f64.powi(31));
    }
    Ok(seen)
}
