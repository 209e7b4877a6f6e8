//! SparCML (Renggli et al., SC 2019): hosts sum sparse streams for each other, and a stream becomes dense where that is
//! shorter.
//!
//! It is the host-based peer of sparse sums in the network, as the ring is of dense sums. Start with [`plan`], the
//! three algorithms as steps: which rank sends what to which. [`chunk`] is a stream of a chunk of the indices, or a
//! dense tensor's chunk as it grows; [`codec`] and [`message`] turn streams into packets and back.
//! [`running`] is one collective on one rank, and [`host::SparcmlHost`] the machine, which has a reliable
//! [`link`](crate::reliability::link) to each rank that it exchanges packets with. `docs/protocols/sparcml.md` states
//! steps, bytes and every field.

mod chunk;
mod codec;
mod host;
mod message;
mod plan;
mod running;
pub mod wire;

use crate::congestion;
use crate::contract::options::{Kind, OptionSet, OptionSpec, Options};
use crate::contract::protocol::{Protocol, Refusal, check_meaning};
use crate::contract::tensor::{Primitive, Spec};
pub use host::SparcmlHost;

/// SparCML (Renggli et al., SC 2019): the peer that sparse sums in the network are measured against.
pub static PROTOCOL: Protocol = Protocol {
    code: 9,
    name: "sparcml",
    about: "the hosts sum sparse tensors in pairs, or each a part of the indices",
    header_len: wire::DATA_LEN,
    options: SET,
    check,
    check_sparse: Some(check_sparse),
    host: |values, config| Box::new(SparcmlHost::new(values, config)),
    describe: wire::describe,
    ..Protocol::BASE
};

/// Accepts every collective of a dense tensor that has a meaning, in a job of dense tensors.
fn check(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    if Choices::of(options).is_sparse {
        let why = " of a dense tensor in a job of sparse ones";
        let instead = "leave the option sparse out, or bring indices and values";
        return Err(Refusal { protocol: "sparcml", spec: *spec, why, instead });
    }
    check_meaning("sparcml", spec)
}

/// Accepts every allreduce that has a meaning, in a job of sparse tensors.
fn check_sparse(spec: &Spec, options: &Options) -> Result<(), Refusal> {
    let (why, instead) = match Choices::of(options).is_sparse {
        false => (" of a sparse tensor in a job of dense ones", "choose sparse=true"),
        true if spec.primitive != Primitive::Allreduce => (" of a sparse tensor", "take an allreduce"),
        true => return check_meaning("sparcml", spec),
    };
    Err(Refusal { protocol: "sparcml", spec: *spec, why, instead })
}

// What a job's members may choose, and which algorithm is used if they choose none.

const SPARSE: &str = "sparse";
const DENSITY: &str = "density_ppm";
const ALGORITHM: &str = "algorithm";
const MILLION: f64 = 1e6;

/// The options of the protocol.
pub const SET: OptionSet = OptionSet {
    simulated: congestion::SIMULATED,
    sparse: Some(of_density),
    ..OptionSet::new(
        "sparcml",
        &[
            OptionSpec { name: SPARSE, kind: Kind::Flag, default: "false", help: "the job sums sparse tensors" },
            OptionSpec {
                name: DENSITY,
                kind: Kind::Count { least: 1, most: 1_000_000 },
                default: "10000",
                help: "elements that a rank brings of a million to a sparse tensor, about: the algorithm is chosen by it",
            },
            OptionSpec {
                name: ALGORITHM,
                kind: Kind::Choice(&["auto", "ssar_recursive_double", "ssar_split_allgather", "dsar_split_allgather"]),
                default: "auto",
                help: "which rank sends what to which; auto takes what should be fastest for the tensor's size and density",
            },
            congestion::option("dctcp"),
            congestion::TARGET_DELAY,
        ],
    )
};

/// The options of a job of sparse tensors.
fn of_density(density_ppm: Option<u64>) -> Vec<(&'static str, String)> {
    let density = density_ppm.map(|ppm| (DENSITY, ppm.clamp(1, 1_000_000).to_string()));
    std::iter::once((SPARSE, "true".to_owned())).chain(density).collect()
}

/// Which rank sends what to which (SparCML §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// SSAR_Recursive_double: pairs of ranks exchange all that they hold, in steps of doubling distance.
    RecursiveDouble,
    /// SSAR_Split_allgather: each rank sums a chunk of the indices, and all gather the sums.
    SplitAllgather,
    /// DSAR_Split_allgather: like SSAR_Split_allgather, but the sums are gathered as dense chunks.
    DenseSplitAllgather,
}

/// What a job has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub struct Choices {
    /// The job's tensors are sparse.
    pub is_sparse: bool,
    density_ppm: u64,
    /// `None`: chosen by size and density.
    algorithm: Option<Algorithm>,
}

/// The cost of a message beyond its bytes, in bytes: a packet takes about 50 microseconds between two hosts, in which a
/// link of 1 Gbit/s carries this many bytes.
const MESSAGE_BYTES: f64 = 6_250.0;

/// Bytes of an index.
pub const INDEX_LEN: usize = 4;

impl Choices {
    /// Reads a job's options.
    pub fn of(options: &Options) -> Choices {
        let algorithm = match options.choice(ALGORITHM) {
            "ssar_recursive_double" => Some(Algorithm::RecursiveDouble),
            "ssar_split_allgather" => Some(Algorithm::SplitAllgather),
            "dsar_split_allgather" => Some(Algorithm::DenseSplitAllgather),
            _ => None,
        };
        Choices { is_sparse: options.flag(SPARSE), density_ppm: options.count(DENSITY), algorithm }
    }

    /// The algorithm of one collective. All ranks choose the same one, since it follows from what they have agreed on.
    pub fn algorithm(&self, spec: &Spec, world_size: u16) -> Algorithm {
        self.algorithm.unwrap_or_else(|| self.fastest(spec, world_size))
    }

    /// Chooses by the costs of SparCML §5.3; streams are as long as random indices of the expected density make them.
    fn fastest(&self, spec: &Spec, world_size: u16) -> Algorithm {
        let size = spec.dtype.size();
        let (elements, value) = (f64::from(spec.elements), size as f64);
        let dense = elements * (value + if self.is_sparse { 0.125 } else { 0.0 });
        let stream = |ranks: u16| match self.is_sparse {
            true => (elements * self.union(ranks) * (value + INDEX_LEN as f64)).min(dense),
            false => dense,
        };
        let folds =
            if world_size.is_power_of_two() { 0.0 } else { 2.0 * MESSAGE_BYTES + stream(1) + stream(world_size) };
        let doublings = 0..world_size.ilog2();
        let steps = f64::from(world_size.ilog2()) * MESSAGE_BYTES;
        let doubled = folds + steps + doublings.map(|step| stream(1 << step)).sum::<f64>();
        let share = f64::from(world_size - 1) / f64::from(world_size);
        let split = folds.min(2.0 * MESSAGE_BYTES)
            + f64::from(world_size - 1) * MESSAGE_BYTES
            + steps
            + share * (stream(1) + stream(world_size));
        match doubled <= split {
            true => Algorithm::RecursiveDouble,
            false if stream(world_size) >= dense => Algorithm::DenseSplitAllgather,
            false => Algorithm::SplitAllgather,
        }
    }

    /// The density of the union of this many ranks' random indices. It uses only multiplications, whose bits are the
    /// same on every machine.
    fn union(&self, ranks: u16) -> f64 {
        let absent = 1.0 - self.density_ppm as f64 / MILLION;
        1.0 - (0..ranks).fold(1.0, |product, _| product * absent)
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::*;

    fn chosen(elements: u32, density_ppm: u64, world_size: u16) -> Algorithm {
        let choices = Choices { is_sparse: true, density_ppm, algorithm: None };
        choices.algorithm(&Spec::allreduce(elements, DType::F32, ReduceOp::Sum), world_size)
    }

    #[test]
    fn small_data_is_doubled_and_large_data_is_split_and_gathered_dense_where_the_union_is() {
        assert_eq!(chosen(1_000, 10_000, 8), Algorithm::RecursiveDouble);
        assert_eq!(chosen(25_000_000, 20_000, 16), Algorithm::SplitAllgather);
        assert_eq!(chosen(25_000_000, 100_000, 64), Algorithm::DenseSplitAllgather);
    }

    #[test]
    fn dense_tensors_are_split_where_they_are_large() {
        let choices = Choices { is_sparse: false, density_ppm: 10_000, algorithm: None };
        let of = |elements| choices.algorithm(&Spec::allreduce(elements, DType::F32, ReduceOp::Sum), 8);
        assert_eq!((of(100), of(10_000_000)), (Algorithm::RecursiveDouble, Algorithm::DenseSplitAllgather));
    }
}
