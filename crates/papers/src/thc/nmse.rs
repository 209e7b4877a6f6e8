//! How far sums of compressed gradients are from exact ones, over workers, for gradients of three kinds.
//!
//! The error is the squared distance of the sum over all workers from the exact sum, divided by the squared length of that
//! (NMSE), over tensors of independent draws on each worker. Beside the codes of the machines are: *plain*, one range for
//! the whole tensor of all workers, rounded to nearest; and *QSGD*, a norm for each worker and 512 elements and stochastic
//! rounding (Alistarh et al., NIPS 2017), whose codes cannot be summed: each worker needs those of all others.

use serde::Deserialize;
use tributary_numeric::{BlockExponent, CodeWidth, ReduceOp, Scale, codec, codes, padded, rotated, thc};
use tributary_sim::rng::{Purpose, Rng};

use crate::finding::{Figure, Finding, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// Elements of a packet of 1,500 bytes as codes of 8 bits.
const BLOCK: usize = 1432;

type Tensor = Vec<f32>;
type Scheme = fn(&[Tensor], &mut Rng) -> Tensor;
type Draw = fn(&mut Rng) -> f64;

const SCHEMES: [(&str, Scheme); 7] = [
    ("int8, down=16", |workers, _| int8(workers, CodeWidth::Sixteen)),
    ("int8, down=8", |workers, _| int8(workers, CodeWidth::Eight)),
    ("plain 8", |workers, _| plain(workers, 127.0)),
    ("QSGD 8", |workers, rng| qsgd(workers, 127.0, rng)),
    ("THC 4", |workers, _| thc4(workers)),
    ("plain 4", |workers, _| plain(workers, 7.0)),
    ("QSGD 4", |workers, rng| qsgd(workers, 7.0, rng)),
];

const GRADIENTS: [(&str, Draw); 3] = [
    ("normal", normal),
    ("heavy-tailed", |rng| {
        let squares: f64 = (0..3).map(|_| normal(rng).powi(2)).sum();
        normal(rng) / (squares / 3.0).sqrt()
    }),
    ("sparse", |rng| if rng.chance(0.01) { normal(rng) } else { 0.0 }),
];

/// The sums.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nmse {
    /// Elements of each worker's tensor.
    pub elements: usize,
    /// Workers, for each point.
    pub workers: Vec<u16>,
}

impl Experiment for Nmse {
    /// For each kind of gradients, scheme and number of workers the finding `<gradients>, <scheme>, <workers>`: the
    /// NMSE.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.elements == 0 || self.workers.contains(&0) {
            return Err(ReproduceError::Bad("a sum needs elements and workers".into()));
        }
        let seeds = context.seeds as usize;
        let points: Vec<(usize, u16, u64)> = (0..GRADIENTS.len())
            .flat_map(|kind| self.workers.iter().map(move |&workers| (kind, workers)))
            .flat_map(|(kind, workers)| (1..=context.seeds).map(move |seed| (kind, workers, seed)))
            .collect();
        let errors = context.watch.all(&points, |&(kind, workers, seed)| Ok(self.errors(kind, workers, seed)))?;
        let mut findings = Findings::default();
        for (kind, (gradients, _)) in GRADIENTS.iter().enumerate() {
            let mut series = SCHEMES.map(|(name, _)| Series::new(name, Vec::new()));
            for (at, &workers) in self.workers.iter().enumerate() {
                let first = (kind * self.workers.len() + at) * seeds;
                for (scheme, series) in series.iter_mut().enumerate() {
                    let of_seeds: Vec<f64> = errors[first..first + seeds].iter().map(|errors| errors[scheme]).collect();
                    let error = Finding::over("seeds", &of_seeds);
                    findings.value(format!("{gradients}, {}, {workers}", series.name), error);
                    series.points.push([f64::from(workers), error.median]);
                }
            }
            findings.figures.push(Figure {
                title: (*gradients).into(),
                x: "workers".into(),
                y: "NMSE of the sum".into(),
                log_x: true,
                series: series.to_vec(),
                marks: Vec::new(),
            });
        }
        Ok(findings)
    }
}

impl Nmse {
    /// The error of each scheme.
    fn errors(&self, kind: usize, workers: u16, seed: u64) -> [f64; SCHEMES.len()] {
        let (mut rng, draw) = (Rng::new(seed, Purpose::Numbers, workers.into()), GRADIENTS[kind].1);
        let tensors: Vec<Tensor> =
            (0..workers).map(|_| (0..self.elements).map(|_| draw(&mut rng) as f32).collect()).collect();
        SCHEMES.map(|(_, scheme)| error(&tensors, &scheme(&tensors, &mut rng)))
    }
}

/// The normalised mean squared error.
fn error(workers: &[Tensor], sum: &[f32]) -> f64 {
    let (mut distance, mut length) = (0.0, 0.0);
    for (index, x) in sum.iter().enumerate() {
        let exact: f64 = workers.iter().map(|worker| f64::from(worker[index])).sum();
        distance += (f64::from(*x) - exact).powi(2);
        length += exact.powi(2);
    }
    distance / length
}

/// `numbers=int8`: through hosts' codes and a switch's sum.
fn int8(workers: &[Tensor], width: CodeWidth) -> Tensor {
    let (mut sum, combine) = (vec![0f32; workers[0].len()], codes(width));
    for block in blocks(sum.len(), BLOCK) {
        let each = || workers.iter().map(|worker| &worker[block.clone()]);
        let range = each().fold(BlockExponent::ZERO, |range, own| range.join(codec::exponent(own)));
        let scale = Scale::codes(range, workers.len() as u16, width);
        let (mut lanes, mut vector) = (vec![0; 2 * block.len()], vec![0; block.len()]);
        for own in each() {
            codec::encode(own, scale, &mut vector);
            (combine.add)(&mut lanes, &vector);
        }
        (combine.finish)(&mut lanes, workers.len() as u16);
        let mut result = vec![0; scale.result_len(block.len())];
        (combine.load)(&lanes, &mut result);
        codec::decode(&result, scale, ReduceOp::Sum, &mut sum[block]);
    }
    sum
}

/// `numbers=thc4`: rotated blocks, whose levels a switch sums exactly.
fn thc4(workers: &[Tensor]) -> Tensor {
    let mut sum = vec![0f32; workers[0].len()];
    let world_size = workers.len() as u16;
    let combine = rotated(CodeWidth::of_levels(world_size));
    for block in blocks(sum.len(), thc::MAX_BLOCK) {
        let each = || workers.iter().map(|worker| &worker[block.clone()]);
        let norm = each().fold(BlockExponent::ZERO, |norm, own| norm.join(codec::norm(own)));
        let scale =
            |rank: usize| Scale::rotated(norm, world_size, block.start as u64, (rank << 32 | block.start) as u64);
        let half = padded(block.len()) / 2;
        let (mut lanes, mut vector) = (vec![0; combine.lane_size * half], vec![0; half]);
        for (rank, own) in each().enumerate() {
            codec::encode(own, scale(rank), &mut vector);
            (combine.add)(&mut lanes, &vector);
        }
        let mut result = vec![0; combine.result_size * half];
        (combine.load)(&lanes, &mut result);
        codec::decode(&result, scale(0), ReduceOp::Sum, &mut sum[block.clone()]);
    }
    sum
}

fn blocks(elements: usize, size: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..elements).step_by(size).map(move |start| start..elements.min(start + size))
}

/// One range for all, rounded to nearest.
fn plain(workers: &[Tensor], levels: f32) -> Tensor {
    let range = workers.iter().flatten().fold(0f32, |range, x| range.max(x.abs()));
    let code = |x: f32| (x / range * levels).round_ties_even();
    let sum_at = |at: usize| workers.iter().map(|worker| code(worker[at])).sum::<f32>() / levels * range;
    (0..workers[0].len()).map(sum_at).collect()
}

/// Each worker's own norm for each 512 elements, rounded at random so that the error is zero on average.
fn qsgd(workers: &[Tensor], levels: f64, rng: &mut Rng) -> Tensor {
    let mut sum = vec![0f64; workers[0].len()];
    for worker in workers {
        for (block, sums) in worker.chunks(512).zip(sum.chunks_mut(512)) {
            let norm = block.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            for (x, sum) in block.iter().zip(sums) {
                let level = f64::from(*x) / norm.max(f64::MIN_POSITIVE) * levels;
                *sum += (level + rng.unit()).floor() / levels * norm;
            }
        }
    }
    sum.into_iter().map(|x| x as f32).collect()
}

/// A normal number, by Box and Muller's method.
fn normal(rng: &mut Rng) -> f64 {
    let (radius, angle) = ((1.0 - rng.unit()).ln(), std::f64::consts::TAU * rng.unit());
    (-2.0 * radius).sqrt() * angle.cos()
}
