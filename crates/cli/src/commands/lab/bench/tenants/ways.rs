//! The ways to share a switch's memory, from a file beside the simulator's, which names their protocols.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

const FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/live/tenants.toml"));

/// One way.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Its name for people.
    pub name: String,
    protocol: String,
    /// The options of both jobs.
    #[serde(default)]
    options: BTreeMap<String, String>,
    /// How many blocks a slot has room for, in jobs with slots of their own.
    pub blocks_per_slot: Option<u32>,
    /// The option that gets half of the memory.
    half_of_memory: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    way: Vec<Way>,
}

impl Way {
    /// All ways, in the order of their turns.
    pub fn all() -> Vec<Way> {
        toml::from_str::<File>(FILE).expect("the file is part of the program").way
    }

    /// The protocol that sums.
    pub fn protocol(&self) -> &'static Protocol {
        protocols::named(&self.protocol).expect("the file names protocols")
    }

    /// The flags of a job's workers, if the switch holds this many blocks.
    pub fn flags(&self, memory_blocks: u32) -> Vec<String> {
        let half = self.half_of_memory.iter().map(|name| (name.clone(), (memory_blocks / 2).max(1).to_string()));
        let options = self.options.clone().into_iter().chain(half);
        options.flat_map(|(name, value)| ["--option".to_owned(), format!("{name}={value}")]).collect()
    }

    /// Slots of a job that has half of the memory for itself: a power of two, as switches give.
    pub fn own_slots(&self, memory_blocks: u32) -> Option<u32> {
        let slots = memory_blocks / 2 / self.blocks_per_slot?;
        slots.checked_ilog2().map(|log| 1 << log)
    }

    /// The flags of the switch: the memory that jobs share, and how many packets a path holds.
    pub fn switch_flags(&self, memory_blocks: u32, path_packets: u32) -> Vec<String> {
        let Some(shared) = &self.protocol().shared else { return Vec::new() };
        let given = [("aggregators", memory_blocks), ("path_packets", path_packets)];
        let known = given.iter().filter(|(name, _)| shared.options.specs.iter().any(|spec| spec.name == *name));
        let flag = |(name, count): &(&str, u32)| {
            ["--switch-option".to_owned(), format!("{}.{name}={count}", self.protocol().name)]
        };
        known.flat_map(flag).collect()
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::options::name_and_value;

    use super::*;

    #[test]
    fn each_way_is_one_that_its_protocol_knows() {
        for way in Way::all() {
            let flags = way.flags(100);
            let options = flags.iter().filter(|flag| *flag != "--option");
            let options = options.map(|flag| name_and_value(flag).expect("a name and a value")).collect();
            way.protocol().options.read(&options).expect("options of the protocol");
            assert!(way.own_slots(100).is_some() != way.protocol().shared.is_some(), "{} shares, or not", way.name);
            assert_eq!(way.switch_flags(100, 80).is_empty(), way.protocol().shared.is_none());
        }
    }

    #[test]
    fn jobs_with_slots_of_their_own_have_half_of_the_memory_at_most() {
        let way = Way::all().into_iter().find(|way| way.blocks_per_slot == Some(2)).expect("a way with slots");
        assert_eq!([32, 100, 128, 208].map(|blocks| way.own_slots(blocks)), [8, 16, 32, 32].map(Some));
    }
}
