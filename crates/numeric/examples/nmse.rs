//! How far sums of compressed gradients are from exact ones: `cargo run -p tributary-numeric --example nmse` prints the
//! table of `docs/numerics.md`, which `scripts/nmse-chart` draws.
//!
//! The error is the squared distance of the sum over all ranks from the exact sum, divided by the squared length of that
//! (NMSE), over tensors of independent draws on each rank. Beside the codes of this crate are: *plain*, one range for the
//! whole tensor of all ranks, rounded to nearest; and *QSGD*, a norm for each rank and 512 elements and stochastic
//! rounding (Alistarh et al., NIPS 2017), whose codes cannot be summed: each rank needs those of all others.

use tributary_numeric::splitmix::{GAMMA, mix};
use tributary_numeric::{BlockExponent, CodeWidth, ReduceOp, Scale, codec, codes, padded, rotated, thc};

const ELEMENTS: usize = 1 << 16;
/// Elements of a packet of 1,500 bytes as codes of 8 bits.
const BLOCK: usize = 1432;
const RANKS: [usize; 6] = [2, 4, 8, 16, 32, 64];

type Tensor = Vec<f32>;
type Scheme = fn(&[Tensor]) -> Tensor;
type Draw = fn(&mut Random) -> f64;

const SCHEMES: [(&str, Scheme); 7] = [
    ("int8, down=16", |ranks| int8(ranks, CodeWidth::Sixteen)),
    ("int8, down=8", |ranks| int8(ranks, CodeWidth::Eight)),
    ("plain 8", |ranks| plain(ranks, 127.0)),
    ("QSGD 8", |ranks| qsgd(ranks, 127.0)),
    ("THC 4", thc4),
    ("plain 4", |ranks| plain(ranks, 7.0)),
    ("QSGD 4", |ranks| qsgd(ranks, 7.0)),
];

const GRADIENTS: [(&str, Draw); 3] = [
    ("normal", Random::normal),
    ("heavy-tailed", |random| {
        let squares: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
        random.normal() / (squares / 3.0).sqrt()
    }),
    ("sparse", |random| if random.uniform() < 0.01 { random.normal() } else { 0.0 }),
];

fn main() {
    let names = SCHEMES.map(|(name, _)| name).join(" | ");
    println!("| gradients | ranks | {names} |\n|---|---:|{}", "---:|".repeat(SCHEMES.len()));
    for (name, draw) in GRADIENTS {
        for world_size in RANKS {
            let mut random = Random(world_size as u64);
            let ranks: Vec<Tensor> =
                (0..world_size).map(|_| (0..ELEMENTS).map(|_| draw(&mut random) as f32).collect()).collect();
            let errors = SCHEMES.map(|(_, scheme)| format!("{:.1e}", error(&ranks, &scheme(&ranks))));
            println!("| {name} | {world_size} | {} |", errors.join(" | "));
        }
    }
}

/// The normalised mean squared error.
fn error(ranks: &[Tensor], sum: &[f32]) -> f64 {
    let (mut distance, mut length) = (0.0, 0.0);
    for (index, x) in sum.iter().enumerate() {
        let exact: f64 = ranks.iter().map(|rank| f64::from(rank[index])).sum();
        distance += (f64::from(*x) - exact).powi(2);
        length += exact.powi(2);
    }
    distance / length
}

/// `numbers=int8`: through hosts' codes and a switch's sum.
fn int8(ranks: &[Tensor], width: CodeWidth) -> Tensor {
    let (mut sum, combine) = (vec![0f32; ELEMENTS], codes(width));
    for start in (0..ELEMENTS).step_by(BLOCK) {
        let block = start..ELEMENTS.min(start + BLOCK);
        let blocks = || ranks.iter().map(|rank| &rank[block.clone()]);
        let range = blocks().fold(BlockExponent::ZERO, |range, own| range.join(codec::exponent(own)));
        let scale = Scale::codes(range, ranks.len() as u16, width);
        let (mut lanes, mut vector) = (vec![0; 2 * block.len()], vec![0; block.len()]);
        for own in blocks() {
            codec::encode(own, scale, &mut vector);
            (combine.add)(&mut lanes, &vector);
        }
        (combine.finish)(&mut lanes, ranks.len() as u16);
        let mut result = vec![0; scale.result_len(block.len())];
        (combine.load)(&lanes, &mut result);
        codec::decode(&result, scale, ReduceOp::Sum, &mut sum[block]);
    }
    sum
}

/// Codes of 4 bits: rotated blocks of 1,024 elements, levels summed exactly.
fn thc4(ranks: &[Tensor]) -> Tensor {
    let mut sum = vec![0f32; ELEMENTS];
    for start in (0..ELEMENTS).step_by(thc::MAX_BLOCK) {
        let block = start..ELEMENTS.min(start + thc::MAX_BLOCK);
        let blocks = || ranks.iter().map(|rank| &rank[block.clone()]);
        let norm = blocks().fold(BlockExponent::ZERO, |norm, own| norm.join(codec::norm(own)));
        let (world_size, half) = (ranks.len() as u16, padded(block.len()) / 2);
        let scale = |rank| Scale::rotated(norm, world_size, start as u64, (rank << 32 | start) as u64);
        let combine = rotated(CodeWidth::of_levels(world_size));
        let (mut lanes, mut vector) = (vec![0; combine.lane_size * half], vec![0; half]);
        for (rank, own) in blocks().enumerate() {
            codec::encode(own, scale(rank), &mut vector);
            (combine.add)(&mut lanes, &vector);
        }
        let mut result = vec![0; combine.result_size * half];
        (combine.load)(&lanes, &mut result);
        codec::decode(&result, scale(0), ReduceOp::Sum, &mut sum[block]);
    }
    sum
}

/// One range for all, rounded to nearest.
fn plain(ranks: &[Tensor], levels: f32) -> Tensor {
    let range = ranks.iter().flatten().fold(0f32, |range, x| range.max(x.abs()));
    let code = |x: f32| (x / range * levels).round_ties_even();
    (0..ELEMENTS).map(|at| ranks.iter().map(|rank| code(rank[at])).sum::<f32>() / levels * range).collect()
}

/// Each rank's own norm for each 512 elements, rounded at random so that the error is zero on average.
fn qsgd(ranks: &[Tensor], levels: f64) -> Tensor {
    let (mut random, mut sum) = (Random(1), vec![0f64; ELEMENTS]);
    for rank in ranks {
        for (block, sums) in rank.chunks(512).zip(sum.chunks_mut(512)) {
            let norm = block.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            for (x, sum) in block.iter().zip(sums) {
                let level = f64::from(*x) / norm.max(f64::MIN_POSITIVE) * levels;
                *sum += (level + random.uniform()).floor() / levels * norm;
            }
        }
    }
    sum.into_iter().map(|x| x as f32).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GAMMA);
        (mix(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Box and Muller's.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((1.0 - self.uniform()).ln(), std::f64::consts::TAU * self.uniform());
        (-2.0 * radius).sqrt() * angle.cos()
    }
}
