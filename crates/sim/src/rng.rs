//! Random numbers whose streams never change: xoshiro256++ (Blackman and Vigna, 2019), with one generator for each
//! purpose and subject, so that no draw shifts another's sequence.

use tributary_numeric::splitmix::GAMMA;
pub use tributary_numeric::splitmix::mix;

/// The purpose of a generator. The numbers are part of the streams: never change one, and add new ones at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// A switch's choice among paths.
    Paths = 1,
    /// Which hosts a job runs on.
    Placement = 2,
    /// Which switches are the roots of trees.
    Roots = 3,
    /// The receivers of a host's background traffic.
    Background = 4,
    /// The faults of a link.
    LinkFaults = 5,
    /// The permutation of a permutation workload.
    Permutation = 6,
    /// The scenarios of swarm tests.
    Scenario = 7,
    /// Operating system noise and start offsets of a host.
    HostNoise = 8,
    /// A job's key.
    Keys = 9,
    /// When background flows start, and how long they are.
    Arrivals = 10,
    /// Real elements of tensors; random draws of a training.
    Numbers = 11,
    /// When jobs of a training arrive, and their properties.
    Training = 12,
    /// Which packets a queue marks, where chance decides.
    Marks = 13,
    /// Who asks and who answers in an incast.
    Queries = 14,
    /// Which seeds of a sweep a resample has.
    Resamples = 15,
    /// When a stream sends and when it is silent.
    Bursts = 16,
    /// By which switches packets take detours.
    Detours = 17,
    /// A host's choice among its NICs.
    Nics = 18,
}

/// A generator.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The generator of one purpose for one subject (a node, a link, a job).
    pub fn new(seed: u64, purpose: Purpose, which: u64) -> Rng {
        let mut state = seed ^ mix(purpose as u64 ^ mix(which));
        Rng(std::array::from_fn(|_| {
            state = state.wrapping_add(GAMMA);
            mix(state)
        }))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which is not 0. (Uneven by less than `bound / 2^32`.)
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// True with this probability.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number with the exponential distribution of mean 1. Von Neumann's method (1951) only compares uniform numbers,
    /// whereas a logarithm may differ between platforms' libraries.
    pub fn exponential(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            // With `first = x`, the run of descending numbers has an odd length with probability exp(-x).
            let first = self.unit();
            let (mut last, mut odd) = (first, true);
            loop {
                let next = self.unit();
                if next >= last {
                    break;
                }
                last = next;
                odd = !odd;
            }
            if odd {
                return whole + first;
            }
            whole += 1.0;
        }
    }

    /// Puts a slice into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u32 + 1) as usize);
        }
    }

    /// A permutation of `0..n` without fixed points (Sattolo); `n` is at least 2.
    pub fn derangement(&mut self, n: usize) -> Vec<u32> {
        let mut items: Vec<u32> = (0..n as u32).collect();
        for end in (1..n).rev() {
            items.swap(end, self.below(end as u32) as usize);
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_xoshiro256_plus_plus() {
        let mut rng = Rng([1, 2, 3, 4]);
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        assert_eq!(std::array::from_fn(|_| rng.bits()), expected);
    }

    #[test]
    fn streams_never_change() {
        let mut rng = Rng::new(1, Purpose::Paths, 0);
        assert_eq!([rng.bits(), rng.bits()], [2_628_605_492_052_061_779, 5_131_200_495_342_158_724]);
    }

    #[test]
    fn subjects_have_independent_streams() {
        let first = |purpose, which| Rng::new(7, purpose, which).bits();
        assert_ne!(first(Purpose::Paths, 0), first(Purpose::Paths, 1));
        assert_ne!(first(Purpose::Paths, 0), first(Purpose::Placement, 0));
    }

    #[test]
    fn exponential_numbers_exceed_x_with_probability_exp_minus_x() {
        let mut rng = Rng::new(1, Purpose::Arrivals, 0);
        let drawn: Vec<f64> = (0..100_000).map(|_| rng.exponential()).collect();
        for x in [0.1, 0.5, 1.0, 2.0, 4.0] {
            let share = drawn.iter().filter(|&&number| number > x).count() as f64 / 1e5;
            assert!((share - (-x).exp()).abs() < 0.005, "{share} above {x}");
        }
    }

    #[test]
    fn a_derangement_moves_every_number() {
        let mut rng = Rng::new(3, Purpose::Permutation, 0);
        let mut permuted = rng.derangement(100);
        assert!(permuted.iter().enumerate().all(|(index, &number)| index != number as usize));
        permuted.sort_unstable();
        assert_eq!(permuted, (0..100).collect::<Vec<_>>());
    }
}
