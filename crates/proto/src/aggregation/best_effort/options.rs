//! Options of a job's members, and options of the operator of the switches, whose aggregators all jobs share.

use super::wire;
use crate::contract::config::JobConfig;
use crate::contract::numbers::{Encoding, Numbers};
use crate::contract::options::{Kind, OptionSpec, Options};
use crate::contract::protocol::Refusal;
use crate::contract::tensor::Spec;
use crate::contract::time::Span;
use crate::contract::values::Values;
use crate::contract::wire::IPV4_AND_UDP_LEN;

/// The name of the option that says which switches sum.
pub const LEVELS: &str = "levels";

/// Which switches sum.
pub const LEVELS_OPTION: OptionSpec = OptionSpec {
    name: LEVELS,
    kind: Kind::Choice(&["1", "2"]),
    default: "2",
    help: "the switch next to the server sums, or the one next to the workers besides",
};

/// The name of the option that says which hosts serve.
pub const SERVED_BY: &str = "served_by";

/// Which hosts serve. With `last_rank` the job consists of workers and one parameter server, whose own part costs no
/// packet.
pub const SERVED_BY_OPTION: OptionSpec = OptionSpec {
    name: SERVED_BY,
    kind: Kind::Choice(&["every_rank", "last_rank"]),
    default: "every_rank",
    help: "each rank is the server of its share of the blocks, or the last one of all, as a parameter server is",
};

/// The name of the option that says how fast windows grow.
const INCREASE: &str = "increase";
/// What a window grows by in a round trip where the option is 0, in bytes: a full packet of most networks. ATP's public
/// program adds the same in whole packets of its own, which are shorter.
const FULL_PACKET: usize = 1500;

/// How fast windows grow once they no longer double.
pub const fn increase_option(default: &'static str) -> OptionSpec {
    OptionSpec {
        name: INCREASE,
        kind: Kind::Count { least: 0, most: u16::MAX as u64 },
        default,
        help: "packets that a window grows by in a round trip; 0: as many as fit into 1,500 bytes, but one at least",
    }
}

/// The length of this job's packets, with the headers of UDP and IP.
pub fn packet_bytes(job: &JobConfig) -> usize {
    IPV4_AND_UDP_LEN + wire::HEADER_LEN + job.payload_bytes()
}

/// How many packets a window of this job grows by in a round trip.
pub fn increase(job: &JobConfig) -> u64 {
    match job.options.count(INCREASE) {
        0 => (FULL_PACKET / packet_bytes(job)).max(1) as u64,
        packets => packets,
    }
}

/// What the operator of the switches chooses.
pub const SWITCH: &[OptionSpec] = &[
    OptionSpec {
        name: "aggregators",
        kind: Kind::Count { least: 0, most: 1 << 20 },
        default: "4096",
        help: "entries of a switch's memory, for the blocks of all jobs; with 0 servers sum everything",
    },
    OptionSpec {
        name: "placement",
        kind: Kind::Choice(&["any", "hash"]),
        default: "any",
        help: "a block takes any free aggregator, or only the one that a hash of its position names",
    },
    OptionSpec {
        name: "overflow",
        kind: Kind::Choice(&["whole", "split"]),
        default: "whole",
        help: "a block of which some found no free aggregator goes to its server whole, or may be split",
    },
    OptionSpec {
        name: "lease",
        kind: Kind::Time { least: Span::from_micros(1), most: Span::from_millis(3_600_000) },
        default: "800 ms",
        help: "an aggregator that nobody has touched for so long passes on what it holds and is free",
    },
    OptionSpec {
        name: "path_packets",
        kind: Kind::Count { least: 1, most: 1 << 20 },
        default: "64",
        help: "packets that the longest path holds (the paper's BDP), for the threshold of AECN marks",
    },
    OptionSpec {
        name: "eta_permille",
        kind: Kind::Count { least: 0, most: 1000 },
        default: "0",
        help: "AECN marks begin at this share of aggregators and path (the paper's eta); 0: as high as eq. 9 allows",
    },
];

/// Defaults of switches whose links are as fast as the paper's: 10 MB of memory, 100 Gbit/s and 10 us (section III-C).
pub const SIMULATED_SWITCH: &[(&str, &str)] = &[("aggregators", "40000"), ("lease", "100 ms"), ("path_packets", "416")];

/// The memory of a switch, as its operator chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    /// How many aggregators there are.
    pub aggregators: u32,
    /// A block's aggregator follows from its position.
    pub by_hash: bool,
    /// A block of which some went on unsummed may take an aggregator that is free by then.
    pub splits: bool,
    /// How long an aggregator is kept that no packet touches.
    pub lease: Span,
    path_packets: u64,
    eta_permille: u64,
}

impl Memory {
    /// A memory of this many aggregators, any of which a block may take, and paths of this many packets; else the
    /// defaults.
    pub fn new(aggregators: u32, path_packets: u64) -> Memory {
        let lease = Span::from_millis(800);
        Memory { aggregators, by_hash: false, splits: false, lease, path_packets, eta_permille: 0 }
    }

    /// Reads the operator's choice.
    pub fn of(options: &Options) -> Memory {
        Memory {
            aggregators: options.count("aggregators") as u32,
            by_hash: options.choice("placement") == "hash",
            splits: options.choice("overflow") == "split",
            lease: options.time("lease"),
            path_packets: options.count("path_packets"),
            eta_permille: options.count("eta_permille"),
        }
    }

    /// A switch marks results if more aggregators are held, and more gradients are under way unsummed, than this: `eta
    /// (M + BDP)`. The default `eta` is the largest that eq. 9 allows if at most a path's packets are summed in a round
    /// trip, and at least a half.
    pub fn threshold(&self, jobs: usize) -> u64 {
        let whole = u64::from(self.aggregators) + self.path_packets;
        match self.eta_permille {
            0 => whole.saturating_sub(self.path_packets + jobs as u64).max(whole / 2),
            eta => whole * eta / 1000,
        }
    }
}

/// Accepts integers as they are, and floats in fixed point.
pub fn check(protocol: &'static str, spec: &Spec) -> Result<(), Refusal> {
    match Encoding::new(Values::Elements, Numbers::Fixed, spec) {
        Some(_) => Ok(()),
        None => {
            let why = ": its aggregators add integers in any order";
            let instead = "sum or average f32, f16 or bf16, or take a protocol that sums floats as floats";
            Err(Refusal { protocol, spec: *spec, why, instead })
        }
    }
}

/// Where the blocks that switches do not sum are summed, and why, for people.
pub fn fallback_note(world_size: u16, servers: u16, options: &Options) -> String {
    let why = "the memory of a switch was full, or a part of them was sent again";
    match servers {
        0 => {}
        1 => return format!("at 1 parameter server on a host of its own: {why}"),
        _ => return format!("at {servers} parameter servers on hosts of their own: {why}"),
    }
    if options.choice(SERVED_BY) == "last_rank" {
        return format!("at the parameter server, rank {}: {why}", world_size.saturating_sub(1));
    }
    match world_size {
        0..=2 => "at the ranks' own servers: on the way to the other one a rank's block meets no third".to_owned(),
        _ => format!("at {world_size} parameter servers: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_that_of_eq_9_unless_it_is_chosen() {
        let memory = |aggregators, eta_permille| Memory { eta_permille, ..Memory::new(aggregators, 416) };
        assert_eq!(memory(40_000, 0).threshold(1), 39_999, "eta = 0.990");
        assert_eq!(memory(8_064, 0).threshold(8), 8_056, "eta = 0.950");
        assert_eq!(memory(100, 0).threshold(8), 258, "never below a half");
        assert_eq!(memory(40_000, 500).threshold(1), 20_208);
    }
}
