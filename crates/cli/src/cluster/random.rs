//! Random numbers that are the same in every run.

use std::f64::consts::TAU;

use tributary_numeric::splitmix::{GAMMA, mix};

/// SplitMix64 (Steele, Lea, Flood 2014), with the distributions that arrays are made of.
pub struct Random(u64);

impl Random {
    /// A generator; other seeds give unrelated numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// Uniform in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Two numbers of the standard normal distribution (Box-Muller).
    pub fn normal_pair(&mut self) -> [f64; 2] {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        let (sin, cos) = (TAU * self.unit()).sin_cos();
        [radius * cos, radius * sin]
    }

    /// Two numbers of Student's t distribution with two degrees of freedom: a few are thousands of times as large as
    /// the typical.
    pub fn heavy_tailed_pair(&mut self) -> [f64; 2] {
        // A normal number divided by the root of half a chi-squared number with two degrees of freedom, which is
        // exponential.
        self.normal_pair().map(|normal| normal / (-self.unit().ln()).sqrt().max(1e-4))
    }

    /// An array of normal numbers.
    pub fn normals(&mut self, elements: usize) -> Vec<f32> {
        let mut values = Vec::with_capacity(elements + 1);
        while values.len() < elements {
            values.extend(self.normal_pair().map(|value| value as f32));
        }
        values.truncate(elements);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let values = Random::new(1).normals(100_001);
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(values.len() == 100_001 && mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn heavy_tails_reach_far() {
        let mut random = Random::new(2);
        let largest = (0..50_000).flat_map(|_| random.heavy_tailed_pair()).fold(0.0, |a: f64, b| a.max(b.abs()));
        assert!(largest > 50.0 && largest.is_finite(), "{largest}");
    }
}
