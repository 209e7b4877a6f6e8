//! Remainders by a number that is chosen once: two multiplications for each, in place of a division, which takes as
//! long as adding ten elements.
//!
//! D. Lemire, O. Kaser, N. Kurz, "Faster Remainder by Direct Computation", 2019.

/// The remainders of 32-bit numbers by one of them, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Modulo {
    by: u32,
    /// 2^64 / `by`, rounded up, modulo 2^64.
    reciprocal: u64,
}

impl Modulo {
    /// Remainders by `by`; by 1 if `by` is 0.
    pub fn new(by: u32) -> Modulo {
        let by = by.max(1);
        Modulo { by, reciprocal: (u64::MAX / u64::from(by)).wrapping_add(1) }
    }

    /// The remainder of `number`.
    #[inline]
    pub fn of(self, number: u32) -> u32 {
        let fraction = self.reciprocal.wrapping_mul(number.into());
        ((u128::from(fraction) * u128::from(self.by)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ends_of_the_range_have_their_remainders() {
        for by in [1, 2, 3, 7, 200, 256, 65_535, 1 << 31, u32::MAX - 1, u32::MAX] {
            for number in [0, 1, by - 1, by, by.wrapping_add(1), 1 << 31, u32::MAX - 1, u32::MAX] {
                assert_eq!(Modulo::new(by).of(number), number % by, "{number} by {by}");
            }
        }
        assert_eq!(Modulo::new(0).of(5), 0);
    }

    proptest! {
        #[test]
        fn remainders_are_those_of_a_division(number: u32, by in 1..=u32::MAX, small in 1..=512u32) {
            prop_assert_eq!(Modulo::new(by).of(number), number % by);
            prop_assert_eq!(Modulo::new(small).of(number), number % small);
        }
    }
}
