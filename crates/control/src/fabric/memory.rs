//! What each switch of a fabric has for jobs: `memory`, and `memory_at` for single switches.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::NodeId;

use super::FabricLayout;
use crate::quantity::Bytes;
use crate::routes::Cabling;

/// The bytes of the switches that the file names. `find` looks nodes up by name.
pub(super) fn by_switch(
    at: &BTreeMap<String, Bytes>,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<BTreeMap<NodeId, u64>, String> {
    let own = |(name, memory): (&String, &Bytes)| {
        let node = find(name).map_err(|error| format!("memory_at: {error}"))?;
        match cabling.switch_index(node) {
            Some(_) => Ok((node, memory.0)),
            None => Err(format!("memory_at: '{name}' is a host, and not a switch")),
        }
    };
    at.iter().map(own).collect()
}

impl FabricLayout {
    /// Bytes for jobs on a switch.
    pub fn memory_of(&self, switch: NodeId) -> u64 {
        self.memory_at.get(&switch).copied().unwrap_or(self.memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use crate::fabric::FabricFile;

    #[test]
    fn a_switch_has_the_memory_that_the_file_gives_it_or_else_that_of_all() {
        let shape = "[leaf_spine]\nleaves = 1\nspines = 2\nhosts_per_leaf = 2\n";
        let parse = |more: &str| {
            FabricFile::parse(&format!(
                "secret = \"0123456789abcdef\"\nmemory = \"2 MiB\"\nmemory_at = {{ {more} }}\n{shape}"
            ))
        };
        let fabric = parse("spine0 = 0, spine1 = \"9 MiB\"").unwrap();
        let memory = fabric.switches().map(|switch| (fabric.name(switch), fabric.memory_of(switch) >> 20));
        assert!(memory.eq([("leaf0", 2), ("spine0", 0), ("spine1", 9)]));
        for (at, error) in [("pigeon", "there is no node 'pigeon'"), ("host0", "'host0' is a host, and not a switch")] {
            let told = parse(&format!("{at} = \"1 MiB\"")).unwrap_err().to_string();
            assert!(told.contains(&format!("memory_at: {error}")), "{told}");
        }
    }
}
