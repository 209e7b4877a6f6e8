//! What a paper's experiments are made of: its files, and the kinds of experiments that they name.

use serde::de::DeserializeOwned;
use toml::Table;

use super::{Context, Findings, ReproduceError};

/// The parameters of one experiment, which can be run.
pub trait Experiment {
    /// Measures; knows nothing of what was published.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError>;

    /// How many simulations it makes, where one takes long: those are announced here and not to the watch.
    fn run_count(&self, _seeds: u64) -> usize {
        0
    }
}

/// Reads an experiment's parameters.
pub type Read = fn(Table) -> Result<Box<dyn Experiment>, toml::de::Error>;

/// What one paper brings.
pub struct Paper {
    /// What several of its files have in common: the name that their `base` gives, and text.
    pub bases: &'static [(&'static str, &'static str)],
    /// Its files: id and text.
    pub files: &'static [(&'static str, &'static str)],
    /// The kinds of experiments that only its files name.
    pub kinds: &'static [(&'static str, Read)],
}

/// The [`Read`] of a kind.
pub fn read<E: Experiment + DeserializeOwned + 'static>(
    parameters: Table,
) -> Result<Box<dyn Experiment>, toml::de::Error> {
    Ok(Box::new(E::deserialize(parameters)?))
}

/// Files of the repository's `experiments`, with their ids. They are part of the program, so that an installed one has
/// them too.
macro_rules! embedded {
    ($($id:literal)*) => {
        &[$(($id, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/", $id, ".toml")))),*]
    };
}
pub(super) use embedded;
