//! Published data: the sizes of flows, and models with the time of one training step (`crates/sim/data`).

use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// A distribution of flow sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowSizes {
    /// Alizadeh et al., SIGCOMM 2010 (DCTCP).
    WebSearch,
    /// Greenberg et al., SIGCOMM 2009 (VL2).
    DataMining,
    /// Roy et al., SIGCOMM 2015.
    Hadoop,
    /// Roy et al., SIGCOMM 2015.
    CacheFollower,
}

impl FlowSizes {
    /// All distributions.
    pub const ALL: [FlowSizes; 4] =
        [FlowSizes::WebSearch, FlowSizes::DataMining, FlowSizes::Hadoop, FlowSizes::CacheFollower];

    fn file(self) -> &'static str {
        match self {
            FlowSizes::WebSearch => include_str!("../../data/web_search.csv"),
            FlowSizes::DataMining => include_str!("../../data/data_mining.csv"),
            FlowSizes::Hadoop => include_str!("../../data/hadoop.csv"),
            FlowSizes::CacheFollower => include_str!("../../data/cache_follower.csv"),
        }
    }

    /// The points of the distribution.
    pub fn table(self) -> SizeTable {
        SizeTable::read(self.file()).expect("the data files are part of the program, and tests read them all")
    }
}

/// Sizes in bytes and the share of flows that are no longer, both ascending. Linear between the points, as their
/// publishers use them.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTable(Vec<(f64, f64)>);

impl SizeTable {
    /// All flows have the same size.
    pub fn always(bytes: u64) -> SizeTable {
        SizeTable(vec![(bytes as f64, 0.0), (bytes as f64, 1.0)])
    }

    /// Reads a file of two columns, with a comma or spaces between them: bytes, and the share of flows that have no more,
    /// up to 1 or to 100 (percent). Lines that begin with # are comments, and the first line may be a heading.
    pub fn read(text: &str) -> Result<SizeTable, String> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        for (index, (number, line)) in lines.enumerate() {
            let cells = line.split([',', ' ', '\t']).filter(|cell| !cell.is_empty());
            let numbers: Option<Vec<f64>> = cells.map(|cell| cell.parse().ok()).collect();
            match numbers.as_deref() {
                Some(&[bytes, share]) if bytes >= 0.0 && share >= 0.0 => points.push((bytes, share)),
                None if index == 0 => {}
                _ => return Err(format!("line {}: it has two columns, bytes and share, and not {line:?}", number + 1)),
            }
        }
        let whole = points.last().map_or(0.0, |&(_, share)| share);
        if whole != 1.0 && whole != 100.0 {
            return Err(format!(
                "its last share is {whole}, and not 1 or 100: all flows have at most the largest size"
            ));
        }
        points.iter_mut().for_each(|(_, share)| *share /= whole);
        if let Some(pair) = points.windows(2).find(|pair| pair[0].0 > pair[1].0 || pair[0].1 > pair[1].1) {
            return Err(format!("bytes and shares ascend, and {} bytes come after {}", pair[1].0, pair[0].0));
        }
        // The flows of the first point, if there are any, have its size.
        if let Some(&(bytes, _)) = points.first().filter(|(_, share)| *share > 0.0) {
            points.insert(0, (bytes, 0.0));
        }
        Ok(SizeTable(points))
    }

    /// All sizes, divided by a number.
    #[must_use]
    pub fn scaled(self, scale: u32) -> SizeTable {
        SizeTable(self.0.into_iter().map(|(bytes, share)| (bytes / f64::from(scale), share)).collect())
    }

    /// Mean bytes.
    pub fn mean(&self) -> f64 {
        self.0.windows(2).map(|pair| (pair[1].1 - pair[0].1) * (pair[0].0 + pair[1].0) / 2.0).sum()
    }

    /// A random size.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let drawn = rng.unit();
        // The last share is 1, and `drawn` is less.
        let index = self.0.partition_point(|&(_, share)| share <= drawn);
        let ((small, below), (large, share)) = (self.0[index - 1], self.0[index]);
        (small + (drawn - below) / (share - below) * (large - small)).round().max(1.0) as u64
    }
}

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// Bytes of its gradients, four for each.
    pub bytes: u64,
    /// Seconds in which a worker computes the gradients of one batch.
    pub compute_seconds: f64,
}

impl Model {
    /// All models.
    pub fn all() -> Vec<Model> {
        let file = include_str!("../../data/models.csv");
        let lines = file.lines().filter(|line| !line.starts_with('#') && !line.starts_with("model,"));
        lines
            .map(|line| Model::read(line).expect("the data file is part of the program, and a test reads it"))
            .collect()
    }

    fn read(line: &'static str) -> Option<Model> {
        let mut cells = line.split(',');
        let name = cells.next()?;
        let parameters: u64 = cells.next()?.parse().ok()?;
        let batch: f64 = cells.next()?.parse().ok()?;
        let images_per_s: f64 = cells.next()?.parse().ok()?;
        Some(Model { name, bytes: 4 * parameters, compute_seconds: batch / images_per_s })
    }
}

#[cfg(test)]
mod sizes_tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn every_file_is_a_distribution() {
        for sizes in FlowSizes::ALL {
            let points = sizes.table().0;
            assert!(points.len() > 5);
            assert_eq!((points[0].1, points[points.len() - 1].1), (0.0, 1.0), "{sizes:?}");
            for pair in points.windows(2) {
                assert!(pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1, "{sizes:?}: {pair:?}");
            }
        }
    }

    #[test]
    fn a_file_of_ones_own_is_read_with_shares_or_percent_and_with_any_separator() {
        let table = |text: &str| SizeTable::read(text).map(|table| table.0);
        let expected = Ok(vec![(0.0, 0.0), (1000.0, 0.5), (2000.0, 1.0)]);
        assert_eq!(table("# a comment\nbytes,share\n0,0\n1000,0.5\n2000,1\n"), expected);
        assert_eq!(table("0 0\n1000 50\n\n2000\t100\n"), expected);
        assert_eq!(table("1000 0.5\n2000 1\n"), Ok(vec![(1000.0, 0.0), (1000.0, 0.5), (2000.0, 1.0)]));
        let sentence = |text: &str| table(text).unwrap_err();
        assert_eq!(sentence("0 0\n1 x\n"), "line 2: it has two columns, bytes and share, and not \"1 x\"");
        assert_eq!(sentence("0 0 0\n"), "line 1: it has two columns, bytes and share, and not \"0 0 0\"");
        assert!(sentence("0 0\n5 0.9\n").starts_with("its last share is 0.9, and not 1 or 100"));
        assert!(sentence("").starts_with("its last share is 0"));
        assert_eq!(sentence("0 0\n9 0.5\n5 1\n"), "bytes and shares ascend, and 5 bytes come after 9");
    }

    #[test]
    fn means_are_those_that_others_state_for_the_same_points() {
        // MQ-ECN's simulation scripts (Bai et al., NSDI 2016) state these three.
        let stated = [
            (FlowSizes::WebSearch, 1_671_357.0),
            (FlowSizes::DataMining, 7_495_019.0),
            (FlowSizes::CacheFollower, 913_703.0),
        ];
        for (sizes, mean) in stated {
            assert!((sizes.table().mean() / mean - 1.0).abs() < 0.03, "{sizes:?}: {}", sizes.table().mean());
        }
    }

    #[test]
    fn draws_follow_the_points() {
        for sizes in FlowSizes::ALL {
            let mut rng = Rng::new(1, Purpose::Arrivals, 0);
            let table = sizes.table();
            let mut drawn: Vec<u64> = (0..20_000).map(|_| table.draw(&mut rng)).collect();
            drawn.sort_unstable();
            let points = &table.0;
            for &(bytes, _) in points {
                let share = points.iter().filter(|point| point.0 == bytes).map(|point| point.1).fold(0.0, f64::max);
                let below = drawn.partition_point(|&size| size as f64 <= bytes) as f64 / 20_000.0;
                assert!((below - share).abs() < 0.015, "{sizes:?}: {below} of flows have at most {bytes} bytes");
            }
        }
    }
}

#[cfg(test)]
mod models_tests {
    use super::*;

    #[test]
    fn the_six_models_of_the_paper_have_their_sizes_and_times() {
        let models = Model::all();
        let rounded: Vec<(&str, u64, u64)> = models
            .iter()
            .map(|model| (model.name, model.bytes / 1_000_000, (model.compute_seconds * 1e3) as u64))
            .collect();
        let expected = [
            ("alexnet", 244, 171),
            ("googlenet", 27, 112),
            ("inception-v3", 95, 450),
            ("resnet-50", 102, 292),
            ("resnet-152", 240, 697),
            ("vgg16", 553, 415),
        ];
        assert_eq!(rounded, expected);
    }
}
