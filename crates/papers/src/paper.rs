//! What a paper's experiments consist of: files, kinds of experiments that they name, and the settings that the paper leaves
//! open.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::{Context, Findings, ReproduceError};

/// The parameters of one experiment, which can be run.
pub trait Experiment {
    /// Measures, without knowing the published values.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError>;

    /// How many simulations it makes, if a simulation takes long: such simulations are counted here and not announced
    /// to the watch.
    fn run_count(&self, _seeds: u64) -> usize {
        0
    }
}

/// Reads an experiment's parameters.
pub type Read = fn(Table) -> Result<Box<dyn Experiment>, toml::de::Error>;

/// The experiments of one paper.
pub struct Paper {
    /// Common parts of several files: the name by which `base` refers to each, and its text.
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

/// Files of the folder `experiments` beside the caller, with their ids. They are compiled into the program, so that an
/// installed program has them too.
macro_rules! embedded {
    ($($id:literal)*) => {
        &[$(($id, include_str!(concat!("experiments/", $id, ".toml")))),*]
    };
}
pub(crate) use embedded;

/// Parameters that the paper leaves open and that were chosen together: `fitted` if the rows were in view, because
/// they then agree, and `open` if not.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The parameters that were chosen.
    pub what: String,
    /// What the paper says about them, and what decided.
    pub because: String,
    /// Other values that may be just as right.
    pub others: Vec<Other>,
}

/// Other values of a setting.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// A short description of them.
    pub name: String,
    /// The parameters, by key.
    #[serde(skip_serializing)]
    pub set: toml::Table,
}

/// A parameter that differs from the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The key, such as `network.queue`.
    pub key: String,
    /// The present value.
    pub value: String,
    /// The file's value, if it has one.
    pub file: Option<String>,
}
