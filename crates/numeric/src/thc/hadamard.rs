//! The randomised Hadamard transform of a block, whose length is a power of two.

use crate::splitmix::splitmix64;

/// The Hadamard transform without its factor.
#[inline(always)]
pub(super) fn transform<N: Near>(block: &mut [f32]) {
    let mut half = 1;
    if block.len() >= NEAR {
        block.as_chunks_mut::<NEAR>().0.iter_mut().for_each(N::combine);
        half = NEAR;
    }
    // Two steps at once, with half of the loads.
    while 4 * half <= block.len() {
        for four in block.chunks_exact_mut(4 * half) {
            let (low, high) = four.split_at_mut(2 * half);
            let ((a, b), (c, d)) = (low.split_at_mut(half), high.split_at_mut(half));
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                let (sum, difference, more, less) = (*a + *b, *a - *b, *c + *d, *c - *d);
                (*a, *b, *c, *d) = (sum + more, difference + less, sum - more, difference - less);
            }
        }
        half *= 4;
    }
    if half < block.len() {
        let (low, high) = block.split_at_mut(half);
        for (a, b) in low.iter_mut().zip(high) {
            (*a, *b) = (*a + *b, *a - *b);
        }
    }
}

/// Elements that a vector register combines among themselves, or two.
pub(crate) const NEAR: usize = 16;

/// The first steps of the transform: compilers make slow loops of them for some sets of instructions.
pub(crate) trait Near {
    /// The transform of these elements alone.
    #[inline(always)]
    fn combine(block: &mut [f32; NEAR]) {
        for half in [1, 2, 4, 8] {
            let before = *block;
            *block =
                std::array::from_fn(|at| before[at ^ half] + if at & half == 0 { before[at] } else { -before[at] });
        }
    }
}

/// Multiplies by a power of two; and half of the elements, drawn by the seed, change their signs.
#[inline(always)]
pub(super) fn scale_and_flip(block: &mut [f32], [first, second]: [f32; 2], seed: u64) {
    for (word, run) in block.chunks_mut(64).enumerate() {
        let signs = splitmix64(seed.wrapping_add((word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        for (half, run) in run.chunks_mut(32).enumerate() {
            let signs = (signs >> (32 * half)) as u32;
            for (bit, x) in run.iter_mut().enumerate() {
                *x = f32::from_bits((*x * first).to_bits() ^ signs << (31 - bit as u32) & 1 << 31);
            }
        }
    }
    // Seldom are two factors needed.
    if second != 1.0 {
        block.iter_mut().for_each(|x| *x *= second);
    }
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
