//! The sizes of a job, and the memory that follows from them: what a switch charges before the job is installed.

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::options::{Kind, Options};
use tributary_proto::contract::protocol::{self, Protocol};

use crate::wording::HumanBytes;

/// The most elements that one packet carries: they fit a UDP datagram over IPv4 or IPv6 with every header.
pub const MAX_ELEMENTS_PER_PACKET: u16 = 16_128;

/// The sizes of a job from which its memory follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// The protocol that the switch runs for the job.
    pub protocol: &'static Protocol,
    /// Slots over all shards.
    pub slots: u16,
    /// Elements of four bytes per slot.
    pub elements_per_packet: u16,
    /// Ranks of the whole job.
    pub world_size: u16,
    /// Workers and switches directly below this switch.
    pub children: u16,
    /// The child switches, and the parent switch.
    pub neighbours: u16,
    /// The shards of the switch.
    pub shards: u16,
    /// In a fabric: trees that divide the slots of each shard. 1 if each shard is a tree.
    pub trees: u16,
    /// Servers that divide the slots in place of the switch's shards; 0 if no servers do.
    pub servers: u16,
    /// The options that the job's members have chosen.
    pub options: Options,
}

impl JobShape {
    /// Bytes for one member in the tables of one shard: its port, address, last packet, probes and entry in the multicast
    /// group.
    const MEMBER_BYTES: u64 = 256;
    /// Bytes for one neighbouring switch in the tables of one shard: its last report, its address.
    const NEIGHBOUR_BYTES: u64 = 512;
    /// Bytes for one rank in the tables of one shard.
    const RANK_BYTES: u64 = 2;
    /// Bytes for a job in the tables of one shard, without slots and members.
    const JOB_BYTES: u64 = 4_096;

    /// The configuration of a job with this shape.
    pub(crate) fn config(&self, job: JobId, key: JobKey) -> JobConfig {
        let JobShape { protocol, slots, elements_per_packet, world_size, ref options, .. } = *self;
        let trees = self.slot_owners();
        let (protocol, options) = (protocol.code, options.clone());
        JobConfig {
            job,
            key,
            protocol,
            world_size,
            slots,
            elements_per_packet,
            trees,
            levels: self.neighbours > 0,
            options,
        }
    }

    /// How many shards or servers divide the slots equally.
    pub fn slot_owners(&self) -> u16 {
        if self.servers > 0 { self.servers } else { self.shards }
    }

    /// True if the job's slots may change while it runs.
    pub(crate) fn resizes(&self) -> bool {
        self.protocol.resizes
    }

    /// The same job with another number of slots.
    pub fn with_slots(&self, slots: u16) -> JobShape {
        JobShape { slots, ..self.clone() }
    }

    /// Bytes that the job takes in the whole switch, rounded up rather than down: the memory of its protocol's
    /// machines, and its entries in the switch's tables.
    pub fn bytes(&self) -> u64 {
        let in_tables = JobShape::JOB_BYTES
            + u64::from(self.children) * JobShape::MEMBER_BYTES
            + u64::from(self.neighbours) * JobShape::NEIGHBOUR_BYTES
            + u64::from(self.world_size) * JobShape::RANK_BYTES;
        let machine = (self.protocol.memory)(&protocol::ShardShape {
            slots: self.slots.div_ceil(self.shards.max(1)),
            elements_per_packet: self.elements_per_packet,
            children: self.children,
            world_size: self.world_size,
            levels: self.neighbours > 0,
            options: &self.options,
        });
        u64::from(self.shards) * (in_tables + machine)
    }

    /// Settings that would need less memory, for a sentence: "with OPTION=VALUE it needs BYTES, " for each option that
    /// counts; also switches in levels, if a switch with few children needs no more than half.
    pub fn savings(&self) -> String {
        let need = self.bytes();
        let chosen = self.options.to_text();
        let modules: Vec<_> = self.options.operators().iter().cloned().collect();
        let others = self.protocol.options.specs.iter().flat_map(|spec| {
            let Kind::Choice(words) = spec.kind else { return None };
            let with = |word: &&'static str| {
                let given = chosen.clone().into_iter().chain([(spec.name.to_owned(), (*word).to_owned())]);
                let options = self.protocol.options.read(&given.collect()).ok()?;
                let options = options.provided(&modules);
                Some((JobShape { options, ..self.clone() }.bytes(), *word))
            };
            // Only the word that needs the least: for an option with many words, all others would be noise.
            let (bytes, word) = words.iter().filter_map(with).min().filter(|(bytes, _)| *bytes < need)?;
            Some(format!("with {}={word} it needs {}, ", spec.name, HumanBytes(bytes)))
        });
        let racks = f64::from(self.world_size).sqrt().ceil() as u16;
        let levels = JobShape { children: racks, neighbours: 1, ..self.clone() };
        let levels = (self.neighbours == 0 && 2 * levels.bytes() <= need).then(|| {
            format!(
                "behind {racks} switches in levels (tributary switch --parent) each needs {}, ",
                HumanBytes(levels.bytes())
            )
        });
        others.chain(levels).collect()
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::options::name_and_value;
    use tributary_proto::protocols;

    use super::*;

    fn with_slots() -> &'static Protocol {
        protocols::named("switchml").unwrap()
    }

    fn shape(protocol: &'static Protocol, given: &[&str], slots: u16) -> JobShape {
        let given = given.iter().map(|given| name_and_value(given).unwrap()).collect();
        let options = protocol.options.read(&given).unwrap();
        JobShape {
            protocol,
            slots,
            elements_per_packet: 360,
            world_size: 4,
            children: 4,
            neighbours: 0,
            shards: 1,
            trees: 1,
            servers: 0,
            options,
        }
    }

    #[test]
    fn a_job_is_charged_two_versions_of_every_slot() {
        // In fixed point a version has one vector; with floats of four children it has two. Each vector has room for 16
        // bits widened to 32, unless half of a packet is enough, as it is in levels.
        for (given, neighbours, vectors) in [
            (&["numbers=fixed"][..], 0, 2),
            (&["numbers=float"], 0, 4),
            (&["numbers=fixed", "narrow_blocks=half"], 0, 1),
            (&["numbers=float", "narrow_blocks=half"], 0, 2),
            (&["numbers=fixed"], 1, 1),
            (&["numbers=float"], 1, 2),
        ] {
            let protocol = with_slots();
            let job = JobShape { elements_per_packet: 256, shards: 2, neighbours, ..shape(protocol, given, 64) };
            let values = 64 * 2 * 256 * 4 * vectors;
            assert!(job.bytes() > values && job.bytes() < 2 * values, "{given:?}: {}", job.bytes());
            let twice = JobShape { slots: 128, ..job.clone() };
            assert!(twice.bytes() - job.bytes() > values);
        }
    }

    #[test]
    fn what_needs_less_memory_is_named() {
        let floats = JobShape { world_size: 64, children: 64, ..shape(with_slots(), &[], 8) };
        let less = floats.savings();
        for named in ["numbers=fixed", "narrow_blocks=half", "in levels"] {
            assert!(less.contains(named), "{less}");
        }
        let least = shape(with_slots(), &["numbers=fixed", "narrow_blocks=half"], 8);
        assert_eq!(least.savings(), "");
    }

    #[test]
    fn a_job_that_only_needs_forwarding_is_charged_no_slots() {
        let job = shape(protocols::named("ring").unwrap(), &[], 512);
        assert_eq!(job.bytes(), JobShape { slots: 8, ..job.clone() }.bytes());
    }
}
