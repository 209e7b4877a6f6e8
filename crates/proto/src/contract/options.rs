//! The options of a protocol: what a person may choose, with types, bounds and defaults, declared once.
//!
//! Options travel as text (`name=value`), whether they come from a flag, a TOML file, JSON or Python, and are read in one
//! place: [`OptionSet::read`]. What it returns has every option, checked; a machine asks for it by name.

use std::collections::BTreeMap;

/// What values an option may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number within bounds.
    Count {
        /// The least ...
        least: u64,
        /// ... and the most that it may be.
        most: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// Its name, in lower case with underscores.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is where nobody chooses, as text.
    pub default: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
}

/// All options of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSet {
    /// The protocol's name, for sentences.
    pub protocol: &'static str,
    /// Its options.
    pub specs: &'static [OptionSpec],
}

/// Why options were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The protocol has no such option.
    #[error("{protocol} has no option \"{name}\"; {known}")]
    Unknown {
        /// The protocol.
        protocol: &'static str,
        /// What was given.
        name: String,
        /// The options that there are, as a clause.
        known: String,
    },
    /// The value is none of those that the option may have.
    #[error("{protocol}'s option {name} is {given}: it may be {allowed}")]
    Value {
        /// The protocol.
        protocol: &'static str,
        /// The option.
        name: &'static str,
        /// What was given.
        given: String,
        /// What it may be.
        allowed: String,
    },
    /// Text that is not `name=value`.
    #[error("\"{0}\" is no option: write name=value")]
    Form(String),
}

/// The value of one option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Count(u64),
    Choice(&'static str),
    Flag(bool),
}

/// Every option of one protocol, checked. `Options::default()` has none: it is for protocols without any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<&'static str, Value>);

impl OptionSet {
    /// A protocol without options.
    pub const fn none(protocol: &'static str) -> OptionSet {
        OptionSet { protocol, specs: &[] }
    }

    /// The options where nobody chooses.
    pub fn defaults(&self) -> Options {
        self.read(&BTreeMap::new()).expect("a protocol's own defaults are within its bounds")
    }

    /// Checks what was chosen, by name, and fills in the rest.
    pub fn read(&self, given: &BTreeMap<String, String>) -> Result<Options, OptionError> {
        if let Some(name) = given.keys().find(|name| !self.specs.iter().any(|spec| spec.name == **name)) {
            return Err(OptionError::Unknown { protocol: self.protocol, name: name.clone(), known: self.known() });
        }
        let values = self.specs.iter().map(|spec| {
            let text = given.get(spec.name).map_or(spec.default, String::as_str);
            let value = spec.kind.read(text).ok_or_else(|| OptionError::Value {
                protocol: self.protocol,
                name: spec.name,
                given: text.to_owned(),
                allowed: spec.kind.allowed(),
            })?;
            Ok((spec.name, value))
        });
        values.collect::<Result<_, _>>().map(Options)
    }

    fn known(&self) -> String {
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name).collect();
        match names.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", names.join(", ")),
        }
    }
}

/// Takes `name=value` apart.
pub fn name_and_value(text: &str) -> Result<(String, String), OptionError> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err(OptionError::Form(text.to_owned())),
    }
}

impl Kind {
    fn read(self, text: &str) -> Option<Value> {
        match self {
            Kind::Count { least, most } => {
                let count = text.parse().ok().filter(|count| (least..=most).contains(count));
                count.map(Value::Count)
            }
            Kind::Choice(words) => words.iter().find(|word| **word == text).map(|word| Value::Choice(word)),
            Kind::Flag => text.parse().ok().map(Value::Flag),
        }
    }

    fn allowed(self) -> String {
        match self {
            Kind::Count { least, most } => format!("a whole number from {least} to {most}"),
            Kind::Choice(words) => words.join(" or "),
            Kind::Flag => "true or false".to_owned(),
        }
    }
}

impl Options {
    /// The number that an option is. An option that its protocol does not declare as a number is our bug.
    pub fn count(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(&Value::Count(count)) => count,
            other => panic!("option {name} is no number but {other:?}"),
        }
    }

    /// The word that an option is. An option that its protocol does not declare as a choice is our bug.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.0.get(name) {
            Some(&Value::Choice(word)) => word,
            other => panic!("option {name} is no word but {other:?}"),
        }
    }

    /// Whether an option is on. An option that its protocol does not declare as a flag is our bug.
    pub fn flag(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(&Value::Flag(flag)) => flag,
            other => panic!("option {name} is no flag but {other:?}"),
        }
    }

    /// All options as text, as [`OptionSet::read`] takes them.
    pub fn to_text(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| match value {
            Value::Count(count) => count.to_string(),
            Value::Choice(word) => (*word).to_owned(),
            Value::Flag(flag) => flag.to_string(),
        };
        self.0.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: OptionSet = OptionSet {
        protocol: "tin",
        specs: &[
            OptionSpec { name: "pipes", kind: Kind::Count { least: 1, most: 8 }, default: "2", help: "" },
            OptionSpec { name: "solder", kind: Kind::Choice(&["lead", "silver"]), default: "silver", help: "" },
            OptionSpec { name: "hot", kind: Kind::Flag, default: "false", help: "" },
        ],
    };

    fn read(given: &[(&str, &str)]) -> Result<Options, String> {
        let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        SET.read(&given).map_err(|error| error.to_string())
    }

    #[test]
    fn what_nobody_chooses_is_the_default() {
        let options = read(&[("pipes", "7")]).unwrap();
        assert_eq!((options.count("pipes"), options.choice("solder"), options.flag("hot")), (7, "silver", false));
        assert_eq!(SET.read(&options.to_text()), Ok(options), "options survive their journey as text");
    }

    #[test]
    fn wrong_options_are_refused_with_a_sentence() {
        let sentence = |given| read(given).unwrap_err();
        assert_eq!(sentence(&[("pipe", "1")]), "tin has no option \"pipe\"; it has pipes, solder, hot");
        assert_eq!(sentence(&[("pipes", "9")]), "tin's option pipes is 9: it may be a whole number from 1 to 8");
        assert_eq!(sentence(&[("solder", "gold")]), "tin's option solder is gold: it may be lead or silver");
        assert_eq!(sentence(&[("hot", "yes")]), "tin's option hot is yes: it may be true or false");
        let none = OptionSet::none("air").read(&BTreeMap::from([("x".into(), "1".into())])).unwrap_err();
        assert_eq!(none.to_string(), "air has no option \"x\"; it has none");
        assert_eq!(name_and_value("pipes").unwrap_err().to_string(), "\"pipes\" is no option: write name=value");
    }
}
