//! The randomised Hadamard transform of a block, whose length is a power of two.

use crate::splitmix::{GAMMA, splitmix64};

/// The Hadamard transform without its factor, of a block that is scaled first, and whose signs the seed changes.
#[inline(always)]
pub(super) fn scale_flip_and_transform<N: Near>(block: &mut [f32], [first, second]: [f32; 2], seed: u64) {
    scale_seldom(block, second);
    for (run, signs) in block.chunks_mut(64).zip(signs(seed)) {
        match run.as_chunks_mut::<NEAR>() {
            (sixteens, []) => {
                for (quarter, run) in sixteens.iter_mut().enumerate() {
                    N::combine(run, first, (signs >> (NEAR * quarter)) as u16);
                }
            }
            _ => {
                flip(run, first, signs as u32);
                transform_short(run);
            }
        }
    }
    transform_far(block);
}

/// The Hadamard transform without its factor.
#[inline(always)]
pub(super) fn transform<N: Near>(block: &mut [f32]) {
    match block.as_chunks_mut::<NEAR>() {
        (sixteens, []) => sixteens.iter_mut().for_each(|run| N::combine(run, 1.0, 0)),
        _ => transform_short(block),
    }
    transform_far(block);
}

/// Multiplies by a power of two; and half of the elements, drawn by the seed, change their signs.
#[inline(always)]
pub(super) fn scale_and_flip(block: &mut [f32], [first, second]: [f32; 2], seed: u64) {
    for (run, signs) in block.chunks_mut(64).zip(signs(seed)) {
        for (half, run) in run.chunks_mut(32).enumerate() {
            flip(run, first, (signs >> (32 * half)) as u32);
        }
    }
    scale_seldom(block, second);
}

/// The signs of each 64 elements.
#[inline(always)]
fn signs(seed: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |word: u64| splitmix64(seed.wrapping_add(word.wrapping_mul(GAMMA))))
}

/// Scales, and changes the signs for which a bit is set, of at most 32 elements.
#[inline(always)]
fn flip(run: &mut [f32], factor: f32, signs: u32) {
    for (bit, x) in run.iter_mut().enumerate() {
        *x = f32::from_bits((*x * factor).to_bits() ^ signs << (31 - bit as u32) & 1 << 31);
    }
}

/// By the second factor of a power of two that binary32 has not, which is seldom needed.
#[inline(always)]
fn scale_seldom(block: &mut [f32], factor: f32) {
    if factor != 1.0 {
        block.iter_mut().for_each(|x| *x *= factor);
    }
}

/// Elements that a vector register combines among themselves, or two.
pub(crate) const NEAR: usize = 16;

/// The first steps of the transform: compilers make slow loops of them for some sets of instructions.
pub(crate) trait Near {
    /// Scales these elements, changes the signs of those whose bits are set, and transforms them.
    #[inline(always)]
    fn combine(block: &mut [f32; NEAR], factor: f32, signs: u16) {
        flip(block, factor, signs.into());
        for half in [1, 2] {
            let before = *block;
            *block =
                std::array::from_fn(|at| before[at ^ half] + if at & half == 0 { before[at] } else { -before[at] });
        }
        step(block, 4);
        step(block, 8);
    }
}

/// The transform of fewer elements than [`NEAR`].
#[inline(always)]
fn transform_short(block: &mut [f32]) {
    let mut half = 1;
    while half < block.len() {
        step(block, half);
        half *= 2;
    }
}

/// One step: elements at a distance of `half` become their sum and their difference.
#[inline(always)]
fn step(block: &mut [f32], half: usize) {
    for two in block.chunks_exact_mut(2 * half) {
        let (low, high) = two.split_at_mut(half);
        for (a, b) in low.iter_mut().zip(high) {
            (*a, *b) = (*a + *b, *a - *b);
        }
    }
}

/// The steps from [`NEAR`] on.
#[inline(always)]
fn transform_far(block: &mut [f32]) {
    let mut half = NEAR;
    if 8 * half <= block.len() {
        three_steps::<{ NEAR / LANES }>(block);
        half *= 8;
    }
    if 8 * half <= block.len() {
        three_steps::<{ 8 * NEAR / LANES }>(block);
        half *= 8;
    }
    while 2 * half <= block.len() {
        step(block, half);
        half *= 2;
    }
}

/// Elements that move together.
const LANES: usize = 8;

/// Three steps at once, with a third of the loads and stores: at distances of `RUN` times [`LANES`] elements, of twice and of
/// four times as many.
#[inline(always)]
fn three_steps<const RUN: usize>(block: &mut [f32]) {
    for runs in block.as_chunks_mut::<LANES>().0.as_chunks_mut::<RUN>().0.as_chunks_mut::<8>().0 {
        for at in 0..RUN {
            let mut elements: [_; 8] = std::array::from_fn(|run| runs[run][at]);
            for distance in [1, 2, 4] {
                for low in (0..8).filter(|low| low & distance == 0) {
                    let (a, b) = (elements[low], elements[low + distance]);
                    (elements[low], elements[low + distance]) = sum_and_difference(a, b);
                }
            }
            runs.iter_mut().zip(elements).for_each(|(run, elements)| run[at] = elements);
        }
    }
}

#[inline(always)]
fn sum_and_difference(a: [f32; LANES], b: [f32; LANES]) -> ([f32; LANES], [f32; LANES]) {
    (std::array::from_fn(|lane| a[lane] + b[lane]), std::array::from_fn(|lane| a[lane] - b[lane]))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain;

    impl Near for Plain {}

    #[test]
    fn the_transform_of_a_transform_is_the_block_times_its_length() {
        for length in (0..=10).map(|power| 1 << power) {
            let block: Vec<f32> = (0..length).map(|at| (at % 7) as f32 - 3.0).collect();
            let mut twice = block.clone();
            (0..2).for_each(|_| transform::<Plain>(&mut twice));
            assert_eq!(twice, block.iter().map(|x| x * length as f32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn signs_that_change_twice_are_as_before_and_scaling_is_exact_below_the_least_power_of_two() {
        let block: Vec<f32> = (0..100).map(|at| at as f32 + 1.0).collect();
        let mut scaled = block.clone();
        scale_and_flip(&mut scaled, [2f32.powi(-100), 0.25], 7);
        let flipped = scaled.iter().filter(|x| x.is_sign_negative()).count();
        assert!((30..70).contains(&flipped), "{flipped} of 100 signs change");
        scale_and_flip(&mut scaled, [2f32.powi(100), 4.0], 7);
        assert_eq!(scaled, block);
    }
}
