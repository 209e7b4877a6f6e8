//! The arrays that the demo's workers load: five parts, which differ in their magnitudes.

use std::ops::Range;
use std::path::{Path, PathBuf};

use tributary_numeric::DType;

use crate::cluster::Random;
use crate::failure::Failure;
use crate::npy::{Array, Data, Header};

/// How the values of a section are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Normal with variance 1, as gradients nearly are.
    Normal,
    /// A few values are thousands of times as large as the typical ones.
    HeavyTailed,
    /// Normal times 1e-30.
    Tiny,
    /// Normal times 1e30.
    Huge,
    /// Each rank has another one of the four: small values vanish beside huge ones, and must do no harm.
    Mixed,
}

impl Section {
    /// All parts, in their order in an array.
    pub const ALL: [Section; 5] = [Section::Normal, Section::HeavyTailed, Section::Tiny, Section::Huge, Section::Mixed];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Section::Normal => "normal",
            Section::HeavyTailed => "heavy-tailed",
            Section::Tiny => "tiny (1e-30)",
            Section::Huge => "huge (1e30)",
            Section::Mixed => "another on each rank",
        }
    }

    /// The place of the section in an array of `elements`.
    pub fn range(self, elements: usize) -> Range<usize> {
        let index = self as usize;
        elements * index / Section::ALL.len()..elements * (index + 1) / Section::ALL.len()
    }

    fn pair(self, rank: usize, random: &mut Random) -> [f64; 2] {
        match self {
            Section::Normal => random.normal_pair(),
            Section::HeavyTailed => random.heavy_tailed_pair(),
            Section::Tiny => random.normal_pair().map(|value| value * 1e-30),
            Section::Huge => random.normal_pair().map(|value| value * 1e30),
            Section::Mixed => Section::ALL[rank % 4].pair(rank, random),
        }
    }
}

/// The array of a rank.
pub fn array(rank: usize, elements: usize) -> Vec<f32> {
    let mut random = Random::new(rank as u64 + 1);
    let mut values = Vec::with_capacity(elements + 1);
    for section in Section::ALL {
        let end = section.range(elements).end;
        while values.len() < end {
            values.extend(section.pair(rank, &mut random).map(|value| value as f32));
        }
        values.truncate(end);
    }
    values
}

/// Writes an array for each rank and returns the paths.
pub fn write(folder: &Path, ranks: usize, elements: usize) -> Result<Vec<PathBuf>, Failure> {
    let write_one = |rank: usize| -> Result<PathBuf, Failure> {
        let path = folder.join(format!("input-{rank}.npy"));
        let data = Data::F32(array(rank, elements));
        std::fs::write(&path, Array { header: Header::vector(DType::F32, elements), data }.to_bytes())?;
        Ok(path)
    };
    std::thread::scope(|scope| {
        let write_one = &write_one;
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || write_one(rank))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sections_cover_an_array_of_any_length() {
        for elements in [0, 1, 4, 7, 1000] {
            let ends: Vec<usize> = Section::ALL.iter().map(|section| section.range(elements).end).collect();
            assert_eq!(Section::Normal.range(elements).start, 0);
            assert_eq!(ends[4], elements);
            assert!(ends.is_sorted());
            assert_eq!(array(0, elements).len(), elements);
        }
    }

    #[test]
    fn every_value_is_finite_and_ranks_differ() {
        let (a, b) = (array(0, 10_000), array(1, 10_000));
        assert!(a.iter().chain(&b).all(|value| value.is_finite()));
        assert_ne!(a, b);
        assert!(a[Section::Huge.range(10_000)].iter().any(|value| value.abs() > 1e29));
        assert!(a[Section::Tiny.range(10_000)].iter().all(|value| value.abs() < 1e-28));
    }
}
