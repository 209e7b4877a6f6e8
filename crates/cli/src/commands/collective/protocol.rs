//! The flags that choose a protocol and its options; their help texts come from the protocols.

use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

use crate::failure::Failure;
use crate::flags::one_of;

/// Reads `--protocol`.
pub fn protocol(text: &str) -> Result<&'static Protocol, String> {
    protocols::named(text).ok_or_else(|| one_of(protocols::names()))
}

/// The help of `--protocol`.
pub fn protocols_help() -> String {
    let said = |protocol: &&Protocol| format!("{} ({})", protocol.name, protocol.about);
    format!("Who sums: {}", protocols::ALL.iter().map(said).collect::<Vec<_>>().join(", "))
}

/// The help of `--option`.
pub fn options_help() -> String {
    let names =
        |protocol: &Protocol| protocol.options.specs.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
    let chosen = protocols::ALL.iter().filter(|protocol| !protocol.options.specs.is_empty());
    let of_each: Vec<String> = chosen.map(|protocol| format!("{}: {}", protocol.name, names(protocol))).collect();
    format!(
        "An option of the protocol, for example numbers=fixed; may be given several times. docs/protocols says what they \
         do, and an unknown value what there is. {}",
        of_each.join("; ")
    )
}

/// A protocol's options, from flags.
pub fn read_options(protocol: &Protocol, given: &[(String, String)]) -> Result<Options, Failure> {
    let given = given.iter().cloned().collect();
    protocol.options.read(&given).map_err(|error| Failure::usage(error.to_string()))
}
