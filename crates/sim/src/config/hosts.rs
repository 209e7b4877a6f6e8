//! Hosts in the file, and how a number of them is chosen.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Share;

/// Hosts in the file: a number, a share, a list, `"all"` or `"rest"`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Hosts {
    /// So many hosts.
    Count(u32),
    /// A share of all hosts.
    Share(Share),
    /// These hosts.
    List(Vec<u32>),
    /// All hosts.
    All,
    /// All hosts that no earlier job or traffic uses.
    #[default]
    Rest,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "expected hosts: a number, a share as in \"50 %\", a list, \"all\" or \"rest\"")]
enum WrittenHosts {
    Count(u32),
    List(Vec<u32>),
    Text(String),
}

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hosts, D::Error> {
        match WrittenHosts::deserialize(deserializer)? {
            WrittenHosts::Count(count) => Ok(Hosts::Count(count)),
            WrittenHosts::List(list) => Ok(Hosts::List(list)),
            WrittenHosts::Text(text) => match text.as_str() {
                "all" => Ok(Hosts::All),
                "rest" => Ok(Hosts::Rest),
                share => share.parse().map(Hosts::Share).map_err(|_| {
                    serde::de::Error::custom(format!(
                        "\"{share}\" names no hosts: write a number, a share as in \"50 %\", a list, \"all\" or \"rest\""
                    ))
                }),
            },
        }
    }
}

impl Serialize for Hosts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Hosts::Count(count) => WrittenHosts::Count(*count),
            Hosts::List(list) => WrittenHosts::List(list.clone()),
            Hosts::Share(share) => WrittenHosts::Text(share.to_string()),
            Hosts::All => WrittenHosts::Text("all".into()),
            Hosts::Rest => WrittenHosts::Text("rest".into()),
        }
        .serialize(serializer)
    }
}

/// Which hosts a number or a share means: hosts that no earlier section uses, or any hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Drawn at random; ranks in random order too.
    #[default]
    Random,
    /// The first hosts, which are side by side.
    Packed,
    /// Drawn at random from all hosts, also those that other sections use.
    Shared,
}
