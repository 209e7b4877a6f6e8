//! `--design`: how a switch combines a block's packets, if the protocol leaves the choice.

use tributary_proto::contract::options::{Kind, OptionSpec};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

use crate::flags::one_of;

/// The option in which protocols name their designs.
const OPTION: &str = "design";

/// The protocol's option, if it has designs.
fn option(protocol: &Protocol) -> Option<&'static OptionSpec> {
    protocol.options.specs.iter().find(|spec| spec.name == OPTION)
}

/// True if the protocol has designs.
pub fn has_designs(protocol: &Protocol) -> bool {
    option(protocol).is_some()
}

fn words() -> Vec<&'static str> {
    let designs = protocols::ALL.iter().filter_map(|protocol| match option(protocol)?.kind {
        Kind::Choice(words) => Some(words),
        _ => None,
    });
    let mut words: Vec<&str> = Vec::new();
    designs.flatten().for_each(|word| {
        if !words.contains(word) {
            words.push(word)
        }
    });
    words
}

/// Reads a design that some protocol has.
pub fn parse(text: &str) -> Result<&'static str, String> {
    words().into_iter().find(|word| *word == text).ok_or_else(|| one_of(words()))
}

fn able() -> String {
    let able = protocols::ALL.iter().filter(|protocol| has_designs(protocol)).map(|protocol| protocol.name);
    able.collect::<Vec<_>>().join(" or ")
}

/// The help of `--design`.
pub fn help() -> String {
    let (able, words) = (able(), words().join(", "));
    format!("How a block's packets meet in the switch, with --protocol {able}: {words}; short for --option {OPTION}=")
}

/// The help of a `--design` that takes several values.
pub fn help_of_several() -> String {
    format!("Measure {} in each of these designs: {} [default: auto]", able(), words().join(", "))
}

/// The design as an option by name.
pub fn as_option(design: &'static str) -> (String, String) {
    (OPTION.to_owned(), design.to_owned())
}
