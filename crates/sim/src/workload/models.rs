//! Models, and the time of one training step of each (`crates/sim/data/models.csv`).

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
mod tests {
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
