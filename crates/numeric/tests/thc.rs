//! What sums through rotated codes of 4 bits promise: docs/protocols/thc.md.

use proptest::prelude::*;
use tributary_numeric::thc::{self, CLIP, GRANULARITY, LEVELS};
use tributary_numeric::{
    BlockExponent, CodeWidth, Element, ReduceOp, Scale, bf16, codec, f16, kernels, padded, rotated,
};

/// The norm on which ranks agree.
fn agreed<T: Element>(ranks: &[&[T]]) -> BlockExponent {
    ranks.iter().fold(BlockExponent::ZERO, |agreed, rank| agreed.join(codec::norm(rank)))
}

/// One block through codes, the switch's sum and back, with the ranks in this order; and the norm that was agreed.
fn allreduce<T: Element + Into<f32>>(ranks: &[&[T]], seed: u64, op: ReduceOp) -> (Vec<T>, BlockExponent) {
    let (norm, world_size, elements) = (agreed(ranks), ranks.len() as u16, ranks[0].len());
    let combine = rotated(CodeWidth::of_levels(world_size));
    let mut vector = vec![0; padded(elements) / 2];
    let mut lanes = vec![0; combine.lane_size * vector.len()];
    for (index, rank) in ranks.iter().enumerate() {
        codec::encode(rank, Scale::rotated(norm, world_size, seed, rounding(rank, seed)), &mut vector);
        if index == 0 { (combine.store)(&mut lanes, &vector) } else { (combine.add)(&mut lanes, &vector) }
    }
    let sums = lanes.as_chunks().0.iter().map(|sum| u16::from_ne_bytes(*sum));
    assert!(sums.max() <= Some(u16::from(GRANULARITY) * world_size));
    let mut result = vec![0; combine.result_size * vector.len()];
    (combine.load)(&lanes, &mut result);
    let mut output = vec![T::default(); elements];
    codec::decode(&result, Scale::rotated(norm, world_size, seed, 0), op, &mut output);
    (output, norm)
}

/// A seed that a rank keeps when the order of ranks changes.
fn rounding<T: Element + Into<f32>>(block: &[T], seed: u64) -> u64 {
    let bits = |x: &T| u64::from(Into::<f32>::into(*x).to_bits());
    block.iter().fold(seed, |hash, x| hash.wrapping_mul(0x100_0000_01b3) ^ bits(x))
}

/// What the codes of a block lose.
fn loss_of<T: Element>(block: &[T], scale: Scale, loss: &mut [T]) {
    let (mut vector, mut same) = (vec![1; scale.sent_len(block.len())], vec![2; scale.sent_len(block.len())]);
    codec::encode_with_loss(block, scale, &mut vector, loss);
    codec::encode(block, scale, &mut same);
    assert_eq!(vector, same, "the packet does not depend on it");
}

fn squares(x: impl Iterator<Item = f32>) -> f64 {
    x.map(|x| f64::from(x).powi(2)).sum()
}

/// Errors of 400 blocks relative to their squared norms.
fn mean_error(mut draw: impl FnMut() -> f32) -> f64 {
    let (mut error, mut length) = (0.0, 0.0);
    for seed in 0..400 {
        let block: Vec<f32> = (0..thc::MAX_BLOCK).map(|_| draw()).collect();
        let (output, _) = allreduce(&[&block[..]], seed, ReduceOp::Sum);
        error += squares(output.iter().zip(&block).map(|(a, b)| a - b));
        length += squares(block.into_iter());
    }
    error / length
}

struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Expected squared error of normal numbers that are clipped at `clip` and rounded to these levels at random, without
/// bias: `(x - a) * (b - x)` between two levels, by the midpoint rule; and the clipped tails.
fn expected_error(levels: &[u8], clip: f64) -> f64 {
    let half = f64::from(levels[levels.len() - 1]) / 2.0;
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let steps = |from: f64, to: f64, error: &dyn Fn(f64) -> f64| -> f64 {
        let width = (to - from) / 200.0;
        (0..200).map(|step| from + (f64::from(step) + 0.5) * width).map(|x| error(x) * density(x) * width).sum()
    };
    let at = |level: u8| (f64::from(level) / half - 1.0) * clip;
    let between: f64 = levels
        .windows(2)
        .map(|pair| (at(pair[0]), at(pair[1])))
        .map(|(a, b)| steps(a, b, &|x| (x - a) * (b - x)))
        .sum();
    between + 2.0 * steps(clip, clip + 6.0, &|x| (x - clip).powi(2))
}

#[test]
fn no_other_symmetrical_table_errs_less_for_normal_numbers() {
    let half = GRANULARITY / 2;
    assert!((0..16).all(|code| LEVELS[code] + LEVELS[15 - code] == GRANULARITY));
    let ours = expected_error(&LEVELS, CLIP.into());
    // All ways to choose seven of the levels between the first and the middle one.
    let mut tables = 0;
    for chosen in (0u32..1 << (half - 1)).filter(|chosen| chosen.count_ones() == 7) {
        let lower: Vec<u8> = (1..half).filter(|level| chosen >> (level - 1) & 1 == 1).collect();
        let mut levels = [0; 16];
        levels[1..8].copy_from_slice(&lower);
        for code in 0..8 {
            levels[15 - code] = GRANULARITY - levels[code];
        }
        tables += 1;
        assert!(ours <= expected_error(&levels, CLIP.into()) + 1e-9, "{levels:?}");
    }
    assert_eq!(tables, 3432);
    assert!((ours - 0.0203).abs() < 1e-4, "{ours}");
}

/// Rotated, all of these look like normal numbers, for which the table is made. A block with one element that is larger than
/// all others together errs less: rotated, it has two values only.
#[test]
fn the_error_is_that_of_normal_numbers_however_gradients_are_distributed() {
    let mut random = Random(1);
    let expected = expected_error(&LEVELS, CLIP.into());
    let normal = mean_error(|| random.normal() as f32);
    let heavy = mean_error(|| (random.normal() / random.uniform().sqrt()) as f32);
    let sparse = mean_error(|| if random.uniform() < 0.02 { random.normal() as f32 } else { 0.0 });
    for (name, error) in [("normal", normal), ("heavy-tailed", heavy), ("sparse", sparse)] {
        assert!(error < 1.1 * expected && error > 0.7 * expected, "{name}: {error} for {expected}");
    }
}

proptest! {
    /// The same bits in any order of arrival; and the error is below a level for each rank, which a rotation spreads over
    /// the block: at most the block's norm times the width of the widest level, and what was clipped.
    #[test]
    fn sums_do_not_depend_on_the_order(
        ranks in (1usize..9, 1usize..300).prop_flat_map(|(ranks, elements)| {
            proptest::collection::vec(proptest::collection::vec(-1e3f32..1e3, elements), ranks)
        }),
        seed in any::<u64>(),
        exponent in -160i32..110,
    ) {
        let ranks: Vec<Vec<f32>> = ranks
            .into_iter()
            .map(|rank| rank.into_iter().map(|x| (f64::from(x) * 2f64.powi(exponent)) as f32).collect())
            .collect();
        let tensors: Vec<&[f32]> = ranks.iter().map(Vec::as_slice).collect();
        let (sum, _) = allreduce(&tensors, seed, ReduceOp::Sum);
        let (average, _) = allreduce(&tensors.iter().rev().copied().collect::<Vec<_>>(), seed, ReduceOp::Avg);
        let largest = average.iter().fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
        for (index, (sum, average)) in sum.iter().zip(&average).enumerate() {
            let close = (sum / ranks.len() as f32 - average).abs() <= 1e-5 * largest;
            prop_assert!(close, "element {index}: {sum:e} and {average:e}");
        }
        let (again, _) = allreduce(&tensors.iter().rev().copied().collect::<Vec<_>>(), seed, ReduceOp::Sum);
        prop_assert_eq!(again.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), sum.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    }

    /// A norm is rounded up by less than a step, at any magnitude.
    #[test]
    fn norms_are_rounded_up(block in proptest::collection::vec(-1e3f32..1e3, 1..200), exponent in -150i32..118) {
        let block: Vec<f32> = block.into_iter().map(|x| (f64::from(x) * 2f64.powi(exponent)) as f32).collect();
        let norm = squares(block.iter().copied()).sqrt();
        let rounded = codec::norm(&block);
        prop_assert_eq!(rounded == BlockExponent::ZERO, norm == 0.0);
        let steps = norm.log2() * f64::from(thc::NORM_STEPS);
        prop_assert!(norm == 0.0 || (-1e-6..1.0 + 1e-6).contains(&(f64::from(rounded.exponent) - steps)), "{}", steps);
        prop_assert!(rounded.exponent <= thc::largest_norm(BlockExponent::MAX));
        // What the codes of a block lack is never longer than it by more than a widest level.
        let mut loss = vec![0.0; block.len()];
        loss_of(&block, Scale::rotated(rounded, 1, 1, 2), &mut loss);
        prop_assert!(squares(loss.into_iter()).sqrt() <= 1.1 * norm + f64::from(f32::MIN_POSITIVE));
    }

    /// Elements that are not finite come out as NaN where they are, and nothing else of their block comes; error feedback
    /// keeps it.
    #[test]
    fn what_is_not_finite_keeps_its_position(
        (world_size, elements) in (1usize..20, 1usize..300),
        odd in proptest::collection::vec((0usize..20, 0usize..300, 0usize..3), 1..5),
    ) {
        let mut ranks = vec![vec![1.5f32; elements]; world_size];
        for (rank, index, which) in odd {
            ranks[rank % world_size][index % elements] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][which];
        }
        let tensors: Vec<&[f32]> = ranks.iter().map(Vec::as_slice).collect();
        let (output, norm) = allreduce(&tensors, 3, ReduceOp::Avg);
        prop_assert!(norm.non_finite);
        for (index, x) in output.into_iter().enumerate() {
            let is_finite = ranks.iter().all(|rank| rank[index].is_finite());
            prop_assert!(if is_finite { x.to_bits() == 0 } else { x.is_nan() }, "element {} is {}", index, x);
        }
        let mut loss = vec![9.0; elements];
        loss_of(&ranks[0], Scale::rotated(norm, world_size as u16, 3, 4), &mut loss);
        for (loss, x) in loss.into_iter().zip(&ranks[0]) {
            prop_assert_eq!(loss, if x.is_finite() { *x } else { 0.0 });
        }
    }
}

/// 8 bits hold the sums of 8 ranks, and 16 bits those of the most ranks that may sum so.
#[test]
fn no_number_of_ranks_overflows() {
    let most = |width| (1..=Scale::MAX_WORLD_SIZE_ROTATED).filter(|&ranks| CodeWidth::of_levels(ranks) == width).max();
    assert_eq!(most(CodeWidth::Eight), Some(8));
    assert_eq!(most(CodeWidth::Sixteen), Some(2184));
    let block = [1e3f32, -1e3, 1e3, 1e3];
    for world_size in [8usize, 9, 2184] {
        let (sum, _) = allreduce(&vec![&block[..]; world_size], 5, ReduceOp::Avg);
        assert!(sum.iter().zip(block).all(|(a, b)| (a - b).abs() < 700.0), "{world_size}: {sum:?}");
    }
}

/// 16-bit floats have the codes of the same numbers in binary32, and the result is rounded to them once.
#[test]
fn narrow_floats_have_the_same_codes() {
    fn check<T: Element + Into<f32>>(of: fn(f32) -> T) {
        let mut random = Random(6);
        let narrow: Vec<Vec<T>> = (0..3).map(|_| (0..700).map(|_| of(random.normal() as f32)).collect()).collect();
        let wide: Vec<Vec<f32>> = narrow.iter().map(|rank| rank.iter().map(|x| (*x).into()).collect()).collect();
        let slices =
            |ranks: &[Vec<f32>]| allreduce(&ranks.iter().map(Vec::as_slice).collect::<Vec<_>>(), 9, ReduceOp::Sum).0;
        let (sum, _) = allreduce(&narrow.iter().map(Vec::as_slice).collect::<Vec<_>>(), 9, ReduceOp::Sum);
        assert_eq!(sum, slices(&wide).into_iter().map(of).collect::<Vec<T>>());
    }
    check(f16::from_f32);
    check(bf16::from_f32);
}

/// A rank that was told a norm that no block has sends codes without meaning, but nothing panics.
#[test]
fn hostile_norms_do_not_panic() {
    for exponent in [i16::MIN, -20_000, 0, 9_000, i16::MAX] {
        let scale = Scale::rotated(BlockExponent { exponent, non_finite: false }, 3, 1, 2);
        codec::encode(&[f32::MAX, f32::NAN, -1e-45], scale, &mut [0; 2]);
        codec::decode(&[255; 4], scale, ReduceOp::Avg, &mut [0f32; 3]);
        loss_of(&[f32::MAX, f32::NAN, -1e-45], scale, &mut [0f32; 3]);
    }
}

#[test]
fn what_codes_lose_and_what_they_bring_is_the_block() {
    let mut random = Random(2);
    for elements in [1, 2, 3, 100, 1000, 1024] {
        let block: Vec<f32> = (0..elements).map(|_| random.normal() as f32).collect();
        let (brought, norm) = allreduce(&[&block[..]], 5, ReduceOp::Sum);
        let mut loss = vec![9.0; elements];
        loss_of(&block, Scale::rotated(norm, 1, 5, rounding(&block, 5)), &mut loss);
        for ((x, brought), loss) in block.iter().zip(brought).zip(loss) {
            assert!((x - brought - loss).abs() < 1e-5, "{x}: {brought} and {loss}");
        }
    }
}

/// What was lost comes later: the average over steps comes to the gradient itself.
#[test]
fn error_feedback_brings_everything() {
    let mut random = Random(3);
    let block: Vec<f32> = (0..1024).map(|_| random.normal() as f32).collect();
    let error_after = |steps: u64, feeds_back: bool| {
        let (mut total, mut left) = (vec![0f64; 1024], vec![0f32; 1024]);
        for seed in 0..steps {
            let brought: Vec<f32> = block.iter().zip(&left).map(|(x, left)| x + left).collect();
            let (output, norm) = allreduce(&[&brought[..]], seed, ReduceOp::Sum);
            if feeds_back {
                loss_of(&brought, Scale::rotated(norm, 1, seed, rounding(&brought, seed)), &mut left);
            }
            total.iter_mut().zip(output).for_each(|(total, x)| *total += f64::from(x));
        }
        total.iter().zip(&block).map(|(total, x)| (total / steps as f64 - f64::from(*x)).powi(2)).sum::<f64>()
    };
    assert!(error_after(100, true) < error_after(100, false) / 10.0);
}

/// All instruction sets make the same packets and the same sums of them.
#[test]
fn kernels_agree() {
    let (mut random, tables) = (Random(4), kernels::available());
    for elements in [1, 2, 5, 64, 357, 1000, 1024] {
        let block: Vec<f32> = (0..elements).map(|_| (random.normal() * 1e-3) as f32).collect();
        let results = tables.iter().map(|table| {
            let fixed = table.f32.fixed.as_ref().expect("floats have codes");
            let scale = Scale::rotated((fixed.norm)(&block), 2, 3, 9);
            let (mut vector, mut loss) = (vec![0; padded(elements) / 2], vec![0.0; elements]);
            let (mut lanes, mut again) = (vec![1; 4 * vector.len()], vec![1; 4 * vector.len()]);
            let (mut sums, mut output) = (vec![0; padded(elements)], vec![0.0; elements]);
            (fixed.encode_rotated)(&block, scale, &mut vector);
            (table.rotated_8.add)(&mut lanes, &vector);
            (table.rotated_8.store)(&mut again, &vector);
            (table.rotated_8.load)(&again, &mut sums);
            let mut same = vec![0; vector.len()];
            (fixed.encode_rotated_with_loss)(&block, scale, &mut same, &mut loss);
            assert_eq!(same, vector, "{}", table.name);
            (fixed.decode_rotated)(&sums, scale, ReduceOp::Avg, &mut output);
            let bits: Vec<u32> = loss.into_iter().chain(output).map(f32::to_bits).collect();
            (scale, vector, lanes, sums, bits)
        });
        let results: Vec<_> = results.collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{elements} elements");
    }
}

#[test]
fn zeros_stay_zeros_and_the_same_seeds_make_the_same_packet() {
    let (zeros, _) = allreduce(&[&[0f32; 100][..], &[0.0; 100]], 7, ReduceOp::Sum);
    assert!(zeros.iter().all(|&x| x == 0.0));
    // On every processor.
    let block: Vec<f32> = (0..16).map(|at| at as f32 - 5.0).collect();
    let mut codes = [0; 8];
    codec::encode(&block, Scale::rotated(codec::norm(&block), 2, 11, 13), &mut codes);
    assert_eq!(codes, [77, 170, 225, 153, 91, 153, 27, 169]);
}
