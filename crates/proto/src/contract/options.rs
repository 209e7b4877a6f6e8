//! The options of a protocol: what a person may choose, with types, bounds and defaults, declared once.
//!
//! Options travel as text (`name=value`), whether they come from a flag, a TOML file, JSON or Python.
//! [`OptionSet::read`] alone reads them. It returns every option, checked; a machine reads an option by its name.

mod custom_op;

use std::collections::BTreeMap;

pub use self::custom_op::CustomOpJob;
use crate::contract::custom_op::CustomOps;
use crate::contract::sum_tree::SumOrder;
use crate::contract::time::Span;

/// The word of a choice for the paper's own rule to the letter where ours does more, so that the two can be compared. It
/// promises only what the paper's does: on bad networks a job may not end, so random scenarios leave it out.
pub const TO_THE_LETTER: &str = "paper";

/// The values that an option may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number within bounds.
    Count {
        /// The least value.
        least: u64,
        /// The greatest value.
        most: u64,
    },
    /// A span of time within bounds, written as in `1.5 us`.
    Time {
        /// The shortest time.
        least: Span,
        /// The longest time.
        most: Span,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// The job's custom operators, by the hashes of their modules.
    CustomOps,
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// The option's name, in lower case with underscores.
    pub name: &'static str,
    /// The values that it may have.
    pub kind: Kind,
    /// The value where none is chosen, as text.
    pub default: &'static str,
    /// What the option does, in one line.
    pub help: &'static str,
}

/// The options of a protocol's jobs, or of the machines that its jobs share.
#[derive(Clone, Copy, Debug)]
pub struct OptionSet {
    /// The protocol's name, for sentences.
    pub protocol: &'static str,
    /// The options.
    pub specs: &'static [OptionSpec],
    /// Defaults that differ in the simulator, where links and switches are as fast as in the papers; as name and text.
    pub simulated: &'static [(&'static str, &'static str)],
    /// Checks that values that are each within bounds go together; the error is a sentence without the protocol's name.
    pub together: fn(&Options) -> Result<(), String>,
    /// The options that make a job one of sparse tensors; `None` if the protocol has no such jobs.
    pub sparse: Option<SparseJob>,
    /// The options that give a job custom operators; `None` if the protocol has no such jobs.
    pub custom_ops: Option<CustomOpJob>,
    /// The tree along which a job's sums are combined.
    pub order: fn(&Options) -> SumOrder,
    /// The fewest ranks that a job's result may be over; `None` if results of this protocol never lack a rank.
    pub quorum: Option<QuorumOf>,
    /// About how many packets carry a block's result to a host. The arguments: the options, the number of ranks, and
    /// elements of four bytes in a packet.
    pub packets_of_a_result: fn(&Options, u16, u16) -> u64,
}

/// The fewest ranks that a result may be over, in a job with these options and this number of ranks; `None` if it must
/// be all ranks.
pub type QuorumOf = fn(&Options, u16) -> Option<u16>;

/// The options of a job of sparse tensors, as name and text. The argument: a rank's density in elements per million, if
/// known.
pub type SparseJob = fn(Option<u64>) -> Vec<(&'static str, String)>;

/// Which defaults apply where no value is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defaults {
    /// The defaults for switches that are processes on ordinary machines.
    Real,
    /// The defaults for the simulator's switches and links.
    Simulated,
}

/// Why options were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The protocol has no such option.
    #[error("{protocol} has no option \"{name}\"; {known}")]
    Unknown {
        /// The protocol.
        protocol: &'static str,
        /// The name that was given.
        name: String,
        /// A clause with the options that there are.
        known: String,
    },
    /// The option may not have this value.
    #[error("{protocol}'s option {name} is {given}: it may be {allowed}")]
    Value {
        /// The protocol.
        protocol: &'static str,
        /// The option.
        name: &'static str,
        /// The value that was given.
        given: String,
        /// The values that it may have.
        allowed: String,
    },
    /// Two values do not go together.
    #[error("{protocol}: {sentence}")]
    Together {
        /// The protocol.
        protocol: &'static str,
        /// What is wrong, and how to mend it.
        sentence: String,
    },
    /// The text is not `name=value`.
    #[error("\"{0}\" is not an option: write name=value")]
    Syntax(String),
}

/// The value of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Count(u64),
    Time(Span),
    Choice(&'static str),
    Flag(bool),
    CustomOps(CustomOps),
}

/// Every option of one protocol, checked. `Options::default()` is empty, for protocols without options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<&'static str, Value>);

impl OptionSet {
    /// Options that have the same defaults everywhere, and whose values all go together.
    pub const fn new(protocol: &'static str, specs: &'static [OptionSpec]) -> OptionSet {
        OptionSet {
            protocol,
            specs,
            simulated: &[],
            together: |_| Ok(()),
            sparse: None,
            custom_ops: None,
            order: |_| SumOrder::Arrival,
            quorum: None,
            packets_of_a_result: |_, _, _| 1,
        }
    }

    /// A protocol without options.
    pub const fn none(protocol: &'static str) -> OptionSet {
        OptionSet::new(protocol, &[])
    }

    /// The options if no value is chosen.
    pub fn defaults(&self) -> Options {
        self.read(&BTreeMap::new()).expect("a protocol's own defaults are within its bounds")
    }

    /// Checks the values that were chosen, by name, and fills in the others.
    pub fn read(&self, given: &BTreeMap<String, String>) -> Result<Options, OptionError> {
        self.read_with(given, Defaults::Real)
    }

    /// The same, with the defaults for one kind of switches.
    pub fn read_with(&self, given: &BTreeMap<String, String>, defaults: Defaults) -> Result<Options, OptionError> {
        if let Some(name) = given.keys().find(|name| !self.specs.iter().any(|spec| spec.name == **name)) {
            return Err(OptionError::Unknown { protocol: self.protocol, name: name.clone(), known: self.known() });
        }
        let values = self.specs.iter().map(|spec| {
            let text = given.get(spec.name).map_or_else(|| self.default_of(spec, defaults), String::as_str);
            let value = spec.kind.read(text).ok_or_else(|| OptionError::Value {
                protocol: self.protocol,
                name: spec.name,
                given: text.to_owned(),
                allowed: spec.kind.allowed(),
            })?;
            Ok((spec.name, value))
        });
        let options = Options(values.collect::<Result<_, _>>()?);
        let protocol = self.protocol;
        (self.together)(&options).map_err(|sentence| OptionError::Together { protocol, sentence })?;
        Ok(options)
    }

    /// The fewest ranks that a result may be over, in a job of `world_size` ranks; `None` if results never lack a rank.
    pub fn quorum(&self, options: &Options, world_size: u16) -> Option<u16> {
        self.quorum.and_then(|quorum| quorum(options, world_size))
    }

    /// The options of a job of sparse tensors, by name: those that were chosen, and those that such a job needs
    /// besides. `density_ppm` is a rank's density in elements per million, if known. `None` if the protocol has no such
    /// jobs.
    pub fn of_sparse(
        &self,
        given: &BTreeMap<String, String>,
        density_ppm: Option<u64>,
    ) -> Option<BTreeMap<String, String>> {
        let needed = (self.sparse?)(density_ppm).into_iter().map(|(name, text)| (name.to_owned(), text));
        Some(needed.chain(given.clone()).collect())
    }

    fn default_of(&self, spec: &OptionSpec, defaults: Defaults) -> &'static str {
        let simulated = self.simulated.iter().find(|(name, _)| *name == spec.name);
        match (defaults, simulated) {
            (Defaults::Simulated, Some(&(_, text))) => text,
            _ => spec.default,
        }
    }

    fn known(&self) -> String {
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name).collect();
        if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) }
    }
}

/// Splits `name=value`.
pub fn name_and_value(text: &str) -> Result<(String, String), OptionError> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err(OptionError::Syntax(text.to_owned())),
    }
}

impl Kind {
    fn read(self, text: &str) -> Option<Value> {
        match self {
            Kind::Count { least, most } => {
                let count = text.parse().ok().filter(|count| (least..=most).contains(count));
                count.map(Value::Count)
            }
            Kind::Time { least, most } => {
                let span = text.parse().ok().filter(|span| (least..=most).contains(span));
                span.map(Value::Time)
            }
            Kind::Choice(words) => words.iter().find(|word| **word == text).map(|word| Value::Choice(word)),
            Kind::Flag => text.parse().ok().map(Value::Flag),
            Kind::CustomOps => CustomOps::from_text(text).map(Value::CustomOps),
        }
    }

    fn allowed(self) -> String {
        match self {
            Kind::Count { least, most } => format!("a whole number from {least} to {most}"),
            Kind::Time { least, most } => {
                format!("a time from {} to {}, as in \"1.5 us\"", least.to_text(), most.to_text())
            }
            Kind::Choice(words) => words.join(" or "),
            Kind::Flag => "true or false".to_owned(),
            Kind::CustomOps => "hashes of 64 hexadecimal digits, at most eight, with commas between them".to_owned(),
        }
    }
}

impl Options {
    /// The value of an option that is a number. It is a bug to ask for an option that is not declared as one.
    pub fn count(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(&Value::Count(count)) => count,
            other => panic!("option {name} is not a number but {other:?}"),
        }
    }

    /// The value of an option that is a time. It is a bug to ask for an option that is not declared as one.
    pub fn time(&self, name: &str) -> Span {
        match self.0.get(name) {
            Some(&Value::Time(span)) => span,
            other => panic!("option {name} is not a time but {other:?}"),
        }
    }

    /// The value of an option that is a choice. It is a bug to ask for an option that is not declared as one.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.0.get(name) {
            Some(&Value::Choice(word)) => word,
            other => panic!("option {name} is not a choice but {other:?}"),
        }
    }

    /// True if there is such a choice, and this word was chosen.
    pub fn has_choice(&self, name: &str, word: &str) -> bool {
        matches!(self.0.get(name), Some(&Value::Choice(chosen)) if chosen == word)
    }

    /// True if a flag is on. It is a bug to ask for an option that is not declared as a flag.
    pub fn flag(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(&Value::Flag(flag)) => flag,
            other => panic!("option {name} is not a flag but {other:?}"),
        }
    }

    /// All options as text, which [`OptionSet::read`] takes.
    pub fn to_text(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| match value {
            Value::Count(count) => count.to_string(),
            Value::Time(span) => span.to_text(),
            Value::Choice(word) => (*word).to_owned(),
            Value::Flag(flag) => flag.to_string(),
            Value::CustomOps(operators) => operators.to_text(),
        };
        self.0.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: OptionSet = OptionSet {
        simulated: &[("wait", "3 us")],
        together: |options| match options.flag("hot") && options.choice("solder") == "silver" {
            true => Err("silver melts too late: leave hot out".to_owned()),
            false => Ok(()),
        },
        ..OptionSet::new(
            "tin",
            &[
                OptionSpec { name: "pipes", kind: Kind::Count { least: 1, most: 8 }, default: "2", help: "" },
                OptionSpec { name: "solder", kind: Kind::Choice(&["lead", "silver"]), default: "silver", help: "" },
                OptionSpec { name: "hot", kind: Kind::Flag, default: "false", help: "" },
                OptionSpec { name: "wait", kind: WAIT, default: "2 ms", help: "" },
            ],
        )
    };
    const WAIT: Kind = Kind::Time { least: Span::from_nanos(100), most: Span::from_millis(1_000) };

    fn read(given: &[(&str, &str)]) -> Result<Options, String> {
        let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        SET.read(&given).map_err(|error| error.to_string())
    }

    #[test]
    fn values_that_are_not_chosen_are_defaults() {
        let options = read(&[("pipes", "7")]).unwrap();
        assert_eq!((options.count("pipes"), options.choice("solder"), options.flag("hot")), (7, "silver", false));
        assert_eq!(options.time("wait"), Span::from_millis(2));
        assert_eq!(SET.read(&options.to_text()), Ok(options), "options survive as text");
    }

    #[test]
    fn the_simulator_has_defaults_of_its_own_where_the_set_says_so() {
        let options = SET.read_with(&BTreeMap::new(), Defaults::Simulated).unwrap();
        assert_eq!((options.count("pipes"), options.time("wait")), (2, Span::from_micros(3)));
        let chosen = BTreeMap::from([("wait".to_owned(), "1.5us".to_owned())]);
        assert_eq!(SET.read_with(&chosen, Defaults::Simulated).unwrap().time("wait"), Span::from_nanos(1_500));
    }

    #[test]
    fn a_sparse_job_has_the_options_that_it_needs_unless_they_are_chosen() {
        let sparse = |density: Option<u64>| {
            let pipes = density.map(|ppm| ("pipes", (ppm / 1_000).to_string()));
            std::iter::once(("solder", "lead".to_owned())).chain(pipes).collect()
        };
        let set = OptionSet { sparse: Some(sparse), ..SET };
        let chosen = BTreeMap::from([("pipes".to_owned(), "3".to_owned())]);
        let given = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect::<BTreeMap<_, _>>())
        };
        assert_eq!(set.of_sparse(&BTreeMap::new(), None), given(&[("solder", "lead")]));
        assert_eq!(set.of_sparse(&BTreeMap::new(), Some(7_000)), given(&[("pipes", "7"), ("solder", "lead")]));
        assert_eq!(set.of_sparse(&chosen, Some(7_000)), given(&[("pipes", "3"), ("solder", "lead")]));
        assert_eq!(SET.of_sparse(&chosen, None), None);
    }

    #[test]
    fn wrong_options_are_refused_with_a_sentence() {
        let sentence = |given| read(given).unwrap_err();
        assert_eq!(sentence(&[("pipe", "1")]), "tin has no option \"pipe\"; it has pipes, solder, hot, wait");
        assert_eq!(sentence(&[("pipes", "9")]), "tin's option pipes is 9: it may be a whole number from 1 to 8");
        assert_eq!(sentence(&[("solder", "gold")]), "tin's option solder is gold: it may be lead or silver");
        assert_eq!(sentence(&[("hot", "yes")]), "tin's option hot is yes: it may be true or false");
        let bounds = "it may be a time from 100 ns to 1 s, as in \"1.5 us\"";
        assert_eq!(sentence(&[("wait", "2 s")]), format!("tin's option wait is 2 s: {bounds}"));
        assert_eq!(sentence(&[("wait", "7")]), format!("tin's option wait is 7: {bounds}"));
        assert_eq!(sentence(&[("hot", "true")]), "tin: silver melts too late: leave hot out");
        assert!(read(&[("hot", "true"), ("solder", "lead")]).is_ok());
        let none = OptionSet::none("air").read(&BTreeMap::from([("x".into(), "1".into())])).unwrap_err();
        assert_eq!(none.to_string(), "air has no option \"x\"; it has none");
        assert_eq!(name_and_value("pipes").unwrap_err().to_string(), "\"pipes\" is not an option: write name=value");
    }
}
