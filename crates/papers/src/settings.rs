//! Settings that a paper leaves open, and parameters that a run changes.

use serde::{Deserialize, Serialize};

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
