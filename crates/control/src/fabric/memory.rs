//! What each switch of a fabric has for jobs: `memory_mib`, and `memory_mib_at` for single switches.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::NodeId;

use super::FabricLayout;
use crate::routes::Cabling;

/// The bytes of the switches that the file names. `find` looks nodes up by name.
pub(super) fn by_switch(
    at: &BTreeMap<String, u32>,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<BTreeMap<NodeId, u64>, String> {
    let own = |(name, &mib): (&String, &u32)| {
        let node = find(name).map_err(|error| format!("memory_mib_at: {error}"))?;
        match cabling.switch_index(node) {
            Some(_) => Ok((node, u64::from(mib) << 20)),
            None => Err(format!("memory_mib_at: '{name}' is a host, and no switch")),
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
                "secret = \"0123456789abcdef\"\nmemory_mib = 2\nmemory_mib_at = {{ {more} }}\n{shape}"
            ))
        };
        let fabric = parse("spine0 = 0, spine1 = 9").unwrap();
        let memory = fabric.switches().map(|switch| (fabric.name(switch), fabric.memory_of(switch) >> 20));
        assert!(memory.eq([("leaf0", 2), ("spine0", 0), ("spine1", 9)]));
        for (at, error) in [("pigeon", "there is no node 'pigeon'"), ("host0", "'host0' is a host, and no switch")] {
            let told = parse(&format!("{at} = 1")).unwrap_err().to_string();
            assert!(told.contains(&format!("memory_mib_at: {error}")), "{told}");
        }
    }
}
