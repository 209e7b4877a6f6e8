//! Who serves jobs in a fabric, as its file says: which of the jobs' own operators switches serve (`[operators]`), and on which
//! hosts servers may be (`servers`).

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_proto::contract::ids::NodeId;

use super::file::FabricFile;
use crate::routes::Cabling;

/// `[operators]`: what every switch serves, and what some switches serve instead.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricOperators {
    /// `any`, `none`, or hashes with commas between them.
    pub allow: String,
    /// The same for single switches, by name.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
}

/// What the file says for each switch; nothing if it has no such table. `find` looks nodes up by name.
pub(super) fn by_switch(
    operators: Option<&FabricOperators>,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<BTreeMap<NodeId, String>, String> {
    let Some(operators) = operators else { return Ok(BTreeMap::new()) };
    let switches = (cabling.hosts..cabling.hosts + cabling.switches).map(NodeId);
    let mut served: BTreeMap<NodeId, String> = switches.map(|switch| (switch, operators.allow.clone())).collect();
    for (name, allow) in &operators.at {
        let node = find(name).map_err(|error| format!("[operators] at: {error}"))?;
        let place =
            served.get_mut(&node).ok_or_else(|| format!("[operators] at: '{name}' is a host, and no switch"))?;
        place.clone_from(allow);
    }
    Ok(served)
}

/// The hosts where servers may be.
pub(super) fn servers(
    file: &FabricFile,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<Vec<NodeId>, String> {
    if file.lossless && !file.servers.is_empty() {
        return Err(
            "servers: these do not wait when a switch tells them to pause; leave out servers or lossless".into()
        );
    }
    let host = |name: &String| match find(name).map_err(|error| format!("servers: {error}"))? {
        node if cabling.switch_index(node).is_none() => Ok(node),
        _ => Err(format!("servers: '{name}' is a switch, and servers are on hosts")),
    };
    file.servers.iter().map(host).collect()
}

#[cfg(test)]
mod tests {
    use crate::fabric::FabricFile;

    const FABRIC: &str = "secret = \"0123456789abcdef\"\n[leaf_spine]\nleaves = 1\nspines = 2\nhosts_per_leaf = 2\n";

    #[test]
    fn the_file_names_the_hosts_where_servers_may_be() {
        let parse = |keys: &str| FabricFile::parse(&format!("{keys}\n{FABRIC}"));
        assert!(parse("").unwrap().servers.is_empty());
        let fabric = parse("servers = [\"host1\"]").unwrap();
        assert_eq!(fabric.servers, [fabric.node_named("host1").unwrap()]);
        for (keys, error) in [
            ("servers = [\"pigeon\"]", "servers: there is no node 'pigeon'"),
            ("servers = [\"leaf0\"]", "servers: 'leaf0' is a switch, and servers are on hosts"),
            ("servers = [\"host1\"]\nrate = \"100 Mbit/s\"\nlossless = true", "leave out servers or lossless"),
        ] {
            let told = parse(keys).unwrap_err().to_string();
            assert!(told.contains(error), "{told}");
        }
    }

    #[test]
    fn a_switch_serves_what_the_file_says_of_it_or_else_of_all() {
        let parse = |more: &str| FabricFile::parse(&format!("{FABRIC}{more}"));
        assert!(parse("").unwrap().operators.is_empty());
        let fabric = parse("[operators]\nallow = \"any\"\nat = { spine0 = \"none\" }\n").unwrap();
        let served = fabric.switches().map(|node| (fabric.name(node), fabric.operators[&node].as_str()));
        assert!(served.eq([("leaf0", "any"), ("spine0", "none"), ("spine1", "any")]));
        for (at, error) in [("pigeon", "there is no node 'pigeon'"), ("host0", "'host0' is a host, and no switch")] {
            let told = parse(&format!("[operators]\nallow = \"any\"\nat = {{ {at} = \"none\" }}\n")).unwrap_err();
            assert!(told.to_string().contains(&format!("[operators] at: {error}")), "{told}");
        }
    }
}
