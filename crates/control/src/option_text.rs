//! Options of protocols as people write them in a file: words, whole numbers, true or false. All are kept as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_proto::switch_options::Given;

/// The value of a protocol's option.
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
