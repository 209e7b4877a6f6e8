//! Compares a sum with the float64 sum of its inputs, element by element, within a bound that theory gives.

use serde::Serialize;
use tributary_numeric::BlockExponent;

use super::arrays::Section;

/// How far a sum may be from the exact sum.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// SwitchML's Theorem 1: `n/f` for each block of this many elements, plus the rounding of the result to float32.
    Theorem1 {
        /// Elements that share a scaling factor.
        block: usize,
    },
    /// The error of a sum of n float32 numbers one after the other: `(n-1) * 2^-24 * sum of |x|` (Higham 2002, §4.2).
    FloatSum,
}

/// The element of a section that came nearest to its bound, or crossed it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Extreme {
    /// Distance from the float64 sum.
    pub error: f64,
    /// The bound.
    pub bound: f64,
    /// The error divided by the bound: at most 1 if it is allowed.
    pub share: f64,
}

/// The result of the check.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// All ranks wrote the same bits.
    pub identical: bool,
    /// The extreme of each section, in the order of [`Section::ALL`].
    pub extremes: Vec<Extreme>,
}

impl Verdict {
    /// The extreme that is nearest to its bound.
    pub fn worst(&self) -> Extreme {
        self.extremes.iter().cloned().fold(Extreme::default(), |a, b| if b.share > a.share { b } else { a })
    }

    /// True if the result is right.
    pub fn holds(&self) -> bool {
        self.identical && self.worst().share <= 1.0
    }
}

/// Compares the ranks' outputs with each other and with the exact sum of their inputs.
pub fn judge(inputs: &[Vec<f32>], outputs: &[Vec<f32>], allowed: Allowed) -> Verdict {
    let elements = inputs.first().map_or(0, Vec::len);
    let bits = |output: &Vec<f32>| output.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let first = outputs.first().map(bits).unwrap_or_default();
    let identical = first.len() == elements && outputs.iter().skip(1).all(|output| bits(output) == first);
    let mut extremes = vec![Extreme::default(); Section::ALL.len()];
    let block = match allowed {
        Allowed::Theorem1 { block } => block,
        Allowed::FloatSum => elements.max(1),
    };
    for start in (0..elements).step_by(block) {
        let end = elements.min(start + block);
        let of_block = match allowed {
            Allowed::Theorem1 { .. } => theorem_1(inputs, start, end),
            Allowed::FloatSum => 0.0,
        };
        for index in start..end {
            let got = outputs.first().and_then(|output| output.get(index)).copied().unwrap_or(f32::NAN);
            let section = Section::ALL.iter().position(|section| section.range(elements).contains(&index)).unwrap_or(0);
            extremes[section].take(inputs, index, got, of_block);
        }
    }
    Verdict { identical, extremes }
}

/// The bound of a block, from its largest magnitude on any rank.
fn theorem_1(inputs: &[Vec<f32>], start: usize, end: usize) -> f64 {
    let magnitude = inputs.iter().flat_map(|input| &input[start..end]).map(|value| value.abs().to_bits()).max();
    BlockExponent::of_magnitude(magnitude.unwrap_or(0)).paper_bound(inputs.len() as u16)
}

impl Extreme {
    /// Checks one more element; `of_block` is 0 for sums made in float32.
    fn take(&mut self, inputs: &[Vec<f32>], index: usize, got: f32, of_block: f64) {
        let values = inputs.iter().map(|input| f64::from(input[index]));
        let (exact, magnitude) = values.fold((0.0, 0.0), |(sum, magnitude), x| (sum + x, magnitude + f64::abs(x)));
        let unit = f64::from(f32::EPSILON) / 2.0;
        let bound = match of_block {
            0.0 => (inputs.len() as f64 - 1.0) * unit * magnitude,
            n_over_f => n_over_f + unit * (exact.abs() + n_over_f),
        };
        let error = (f64::from(got) - exact).abs();
        // Zeros have a bound of zero; a NaN exceeds every bound.
        let share = if error == 0.0 { 0.0 } else { error / bound };
        if share > self.share || share.is_nan() {
            *self = Extreme { error, bound, share: if share.is_nan() { f64::INFINITY } else { share } };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> Vec<Vec<f32>> {
        (0..4).map(|rank| super::super::arrays::array(rank, 1000)).collect()
    }

    fn sums(inputs: &[Vec<f32>]) -> Vec<f32> {
        let sum = |index: usize| inputs.iter().map(|input| f64::from(input[index])).sum::<f64>() as f32;
        (0..inputs[0].len()).map(sum).collect()
    }

    #[test]
    fn the_rounded_exact_sum_holds_under_both_bounds() {
        let inputs = inputs();
        let outputs = vec![sums(&inputs); 4];
        assert!(judge(&inputs, &outputs, Allowed::Theorem1 { block: 64 }).holds());
        assert!(judge(&inputs, &outputs, Allowed::FloatSum).holds());
    }

    #[test]
    fn a_missing_contribution_is_seen_in_every_section() {
        let inputs = inputs();
        let outputs = vec![sums(&inputs[..3]); 4];
        let verdict = judge(&inputs, &outputs, Allowed::Theorem1 { block: 64 });
        // Rank 3 brings the huge values of the mixed section.
        assert!(verdict.identical && verdict.extremes.iter().all(|extreme| extreme.share > 1000.0), "{verdict:?}");
    }

    #[test]
    fn ranks_that_differ_in_one_bit_are_seen() {
        let inputs = inputs();
        let mut outputs = vec![sums(&inputs); 4];
        outputs[2][17] = f32::from_bits(outputs[2][17].to_bits() ^ 1);
        assert!(!judge(&inputs, &outputs, Allowed::Theorem1 { block: 64 }).holds());
    }

    #[test]
    fn a_short_output_or_a_nan_is_wrong() {
        let inputs = inputs();
        assert!(!judge(&inputs, &vec![vec![0.0; 3]; 4], Allowed::FloatSum).holds());
        let mut outputs = vec![sums(&inputs); 4];
        outputs.iter_mut().for_each(|output| output[5] = f32::NAN);
        assert!(!judge(&inputs, &outputs, Allowed::FloatSum).holds());
    }
}
