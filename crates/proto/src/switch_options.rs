//! The options that operators choose for the machines that jobs share in a switch, by protocol.
//!
//! An option may be written in a file (`[switches.NAME]`), as a flag (`NAME.OPTION=VALUE`) or in JSON. It becomes text
//! by name, and is read and checked here.

use std::collections::BTreeMap;

use crate::contract::options::{Defaults, OptionError, OptionSet, Options, name_and_value};
use crate::contract::protocol::{Protocol, Shared};
use crate::protocols;

/// Options as text: by protocol, and by their own names.
pub type Given = BTreeMap<String, BTreeMap<String, String>>;

/// The options of every protocol whose jobs share memory, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchOptions(BTreeMap<&'static str, Options>);

/// Why options of switches were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchOptionError {
    /// No protocol of that name has options for switches.
    #[error("switches have no options for \"{name}\", except for {known}")]
    Protocol {
        /// The name that was given.
        name: String,
        /// The protocols that have options for switches.
        known: String,
    },
    /// One of a protocol's options is wrong.
    #[error("switches: {0}")]
    Option(#[from] OptionError),
    /// Text that is not `PROTOCOL.NAME=VALUE`.
    #[error("\"{0}\" is not an option of switches: write PROTOCOL.NAME=VALUE")]
    Syntax(String),
}

/// The protocols that have options of switches.
fn sets() -> impl Iterator<Item = &'static OptionSet> {
    protocols::ALL.iter().filter_map(|protocol| protocol.shared.as_ref()).map(|shared| &shared.options)
}

impl SwitchOptions {
    /// Checks what was chosen, and fills in the rest.
    pub fn read(given: &Given, defaults: Defaults) -> Result<SwitchOptions, SwitchOptionError> {
        if let Some(name) = given.keys().find(|name| !sets().any(|set| set.protocol == **name)) {
            let known: Vec<&str> = sets().map(|set| set.protocol).collect();
            let known = if known.is_empty() { "no protocol".to_owned() } else { known.join(", ") };
            return Err(SwitchOptionError::Protocol { name: name.clone(), known });
        }
        let nothing = BTreeMap::new();
        let read = sets().map(|set| {
            let options = set.read_with(given.get(set.protocol).unwrap_or(&nothing), defaults)?;
            Ok((set.protocol, options))
        });
        read.collect::<Result<_, _>>().map(SwitchOptions)
    }

    /// The options if no value is chosen.
    pub fn defaults(defaults: Defaults) -> SwitchOptions {
        SwitchOptions::read(&Given::new(), defaults).expect("a protocol's own defaults are within its bounds")
    }

    /// The options of one protocol; its defaults on real switches if it is not in the list.
    pub fn of(&self, shared: &Shared) -> Options {
        self.0.get(shared.options.protocol).cloned().unwrap_or_else(|| shared.options.defaults())
    }

    /// A value that a protocol derives from these options; `None` if its jobs share no memory.
    pub fn derive<T>(&self, protocol: &Protocol, value: impl Fn(&Shared) -> fn(&Options) -> T) -> Option<T> {
        protocol.shared.as_ref().map(|shared| value(shared)(&self.of(shared)))
    }
}

/// Splits `PROTOCOL.NAME=VALUE`, and adds it to what was given before.
pub fn add(given: &mut Given, text: &str) -> Result<(), SwitchOptionError> {
    let syntax = || SwitchOptionError::Syntax(text.to_owned());
    let (path, value) = name_and_value(text).map_err(|_| syntax())?;
    let (protocol, name) = path.split_once('.').ok_or_else(syntax)?;
    given.entry(protocol.to_owned()).or_default().insert(name.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(texts: &[&str]) -> Given {
        let mut given = Given::new();
        texts.iter().for_each(|text| add(&mut given, text).unwrap());
        given
    }

    #[test]
    fn each_protocols_options_of_switches_are_read_by_the_one_path() {
        for set in sets() {
            for spec in set.specs {
                for defaults in [Defaults::Real, Defaults::Simulated] {
                    let text = set.read_with(&BTreeMap::new(), defaults).unwrap().to_text();
                    let chosen = given(&[&format!("{}.{} = {}", set.protocol, spec.name, text[spec.name])]);
                    assert_eq!(SwitchOptions::read(&chosen, defaults), Ok(SwitchOptions::defaults(defaults)));
                }
            }
            let wrong = given(&[&format!("{}.wings=2", set.protocol)]);
            let sentence = SwitchOptions::read(&wrong, Defaults::Real).unwrap_err().to_string();
            let expected = format!("switches: {} has no option \"wings\"; it has ", set.protocol);
            assert!(sentence.starts_with(&expected), "{sentence}");
        }
    }

    #[test]
    fn what_is_for_no_protocol_is_refused_with_a_sentence() {
        let sentence = SwitchOptions::read(&given(&["pigeon.wings=2"]), Defaults::Real).unwrap_err().to_string();
        assert!(sentence.starts_with("switches have no options for \"pigeon\", except for "), "{sentence}");
        for text in ["wings", "wings=2", "pigeon.wings"] {
            let sentence = add(&mut Given::new(), text).unwrap_err().to_string();
            assert_eq!(sentence, format!("\"{text}\" is not an option of switches: write PROTOCOL.NAME=VALUE"));
        }
    }
}
