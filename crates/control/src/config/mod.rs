//! The files that operators write: the switch's file, and the file of tokens.

mod switch_file;
mod tokens;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_proto::switch_options::Given;

pub use switch_file::{OperatorsFile, QuotaFile, SwitchConfigFile};
pub use tokens::{Tenant, Tokens, is_token_byte};

/// Why a file is invalid: one sentence that names the line or the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(sentence: String) -> ConfigError {
        ConfigError(sentence)
    }

    pub(crate) fn at(text: &str, error: &toml::de::Error) -> ConfigError {
        // The parser's message may have several lines; the sentence has one.
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        match error.span() {
            Some(span) => ConfigError(format!("line {}: {message}", text[..span.start].matches('\n').count() + 1)),
            None => ConfigError(message),
        }
    }
}

/// The value of a protocol's option as people write it: a word, a whole number, true or false. It is kept as text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "OptionScalar", into = "String")]
pub struct OptionText(pub String);

/// A table of options by name.
pub type OptionTable = BTreeMap<String, OptionText>;

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a word, a whole number, true or false")]
enum OptionScalar {
    Flag(bool),
    Count(u64),
    Word(String),
}

impl From<OptionScalar> for OptionText {
    fn from(scalar: OptionScalar) -> OptionText {
        OptionText(match scalar {
            OptionScalar::Flag(flag) => flag.to_string(),
            OptionScalar::Count(count) => count.to_string(),
            OptionScalar::Word(word) => word,
        })
    }
}

impl From<OptionText> for String {
    fn from(text: OptionText) -> String {
        text.0
    }
}

/// A table in the form that `OptionSet::read` takes.
pub fn texts(table: &OptionTable) -> BTreeMap<String, String> {
    table.iter().map(|(name, text)| (name.clone(), text.0.clone())).collect()
}

/// A file's `[switches]`, a table of options for each protocol, in the form that `SwitchOptions::read` takes.
pub fn of_switches(section: &BTreeMap<String, OptionTable>) -> Given {
    section.iter().map(|(protocol, table)| (protocol.clone(), texts(table))).collect()
}
