//! What happens with an operation of a group that spans hosts: in which fragments, and who does what with each.

use std::ops::Range;

use tributary_numeric::ReduceOp;

use crate::collective::{Description, Kind};

/// Bytes of a fragment: while one is in the network, hosts work on those beside it.
const FRAGMENT_BYTES: usize = 2 << 20;

/// The host of each rank, and which rank this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    hosts: Vec<u16>,
    rank: u16,
    count: u16,
    are_alike: bool,
}

impl Hosts {
    /// Hosts are numbered from 0, each with a rank or several; `None` if they are not.
    pub fn new(hosts: Vec<u16>, rank: u16) -> Option<Hosts> {
        let count = hosts.iter().max()?.checked_add(1)?;
        let of_each = |host: u16| hosts.iter().filter(|&&other| other == host).count();
        let first = of_each(0);
        let are_alike = (1..count).all(|host| of_each(host) == first);
        let have_ranks = (0..count).all(|host| of_each(host) > 0);
        (have_ranks && usize::from(rank) < hosts.len()).then_some(Hosts { hosts, rank, count, are_alike })
    }

    /// How many hosts there are.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// True if all hosts have equally many ranks.
    pub fn are_alike(&self) -> bool {
        self.are_alike
    }

    /// How many ranks there are on all hosts.
    pub fn ranks(&self) -> u16 {
        self.hosts.len() as u16
    }

    /// A rank's host.
    pub fn host(&self, rank: u16) -> u16 {
        self.hosts[usize::from(rank)]
    }

    /// This rank's host.
    pub fn own(&self) -> u16 {
        self.host(self.rank)
    }

    /// The ranks of a host. The first of them leads: it is the host's member of the job in the network.
    pub fn ranks_of(&self, host: u16) -> Vec<u16> {
        (0..self.ranks()).filter(|&rank| self.host(rank) == host).collect()
    }

    /// A rank's index on its host.
    pub fn index(&self, rank: u16) -> u16 {
        (0..rank).filter(|&other| self.host(other) == self.host(rank)).count() as u16
    }

    /// True if this rank leads.
    pub fn leads(&self) -> bool {
        self.index(self.rank) == 0
    }
}

/// Which operators the levels have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operators {
    /// In a host's memory.
    pub local: ReduceOp,
    /// Between hosts.
    pub between: ReduceOp,
    /// True if the leader divides at the end.
    pub divides: bool,
}

impl Operators {
    /// No sum of 16-bit floats is out of range where the average is not: averages are averages of averages where every
    /// host has as many ranks. Otherwise a host's sum is divided by the number of all ranks, before hosts add theirs.
    /// Integers are divided once, as the rounding of two divisions would differ.
    pub fn of(operation: &Description, hosts: &Hosts) -> Operators {
        let op = operation.op;
        if op == ReduceOp::Avg && !operation.dtype.is_float() {
            return Operators { local: ReduceOp::Sum, between: ReduceOp::Sum, divides: true };
        }
        if op == ReduceOp::Avg && !hosts.are_alike() {
            return Operators { local: op, between: ReduceOp::Sum, divides: false };
        }
        Operators { local: op, between: op, divides: false }
    }
}

/// How a host's data come to its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gather {
    /// They are combined.
    Reduce,
    /// The rank with this index on the host brings them.
    From(u16),
    /// The leader has them, or another host does.
    Nothing,
}

/// Some elements of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Bytes of this rank's input.
    pub input: Range<usize>,
    /// Bytes of this rank's output, if it wants the result.
    pub output: Range<usize>,
    /// True if it does; the leader also where the data are its own.
    pub wants: bool,
    /// How a host's data come to its leader.
    pub gather: Gather,
    /// What the leaders do: a root is a host.
    pub between: Kind,
    /// True if other ranks of this host want the result.
    pub spreads: bool,
}

/// The fragments of an operation, at least one. The leaders of all hosts bring the same ones to the network.
pub(crate) fn fragments(operation: &Description, hosts: &Hosts) -> Vec<Fragment> {
    let bytes = operation.elements * operation.dtype.size();
    let shard = bytes / usize::from(hosts.ranks());
    match operation.kind {
        Kind::AllReduce => cut(0..bytes, 0..bytes, |input, output| Fragment {
            input,
            output,
            wants: true,
            gather: Gather::Reduce,
            between: Kind::AllReduce,
            spreads: true,
        }),
        Kind::Reduce { root } => reduced(hosts, root, 0..bytes),
        Kind::ReduceScatter => {
            (0..hosts.ranks()).flat_map(|rank| reduced(hosts, rank, shard_of(rank, shard))).collect()
        }
        Kind::Broadcast { root } => copied(hosts, root, 0..bytes),
        Kind::AllGather => (0..hosts.ranks()).flat_map(|rank| copied(hosts, rank, shard_of(rank, bytes))).collect(),
    }
}

fn shard_of(rank: u16, bytes: usize) -> Range<usize> {
    let start = usize::from(rank) * bytes;
    start..start + bytes
}

/// Elements that one rank gets.
fn reduced(hosts: &Hosts, root: u16, bytes: Range<usize>) -> Vec<Fragment> {
    let is_here = hosts.host(root) == hosts.own();
    cut(bytes.clone(), 0..bytes.len(), |input, output| Fragment {
        input,
        output,
        wants: root == hosts.rank,
        gather: Gather::Reduce,
        between: Kind::Reduce { root: hosts.host(root) },
        spreads: is_here && hosts.index(root) != 0,
    })
}

/// Bytes of one rank that all others get, there in their output.
fn copied(hosts: &Hosts, root: u16, bytes: Range<usize>) -> Vec<Fragment> {
    let is_here = hosts.host(root) == hosts.own();
    let is_of_another = is_here && hosts.index(root) != 0;
    cut(0..bytes.len(), bytes, |input, output| Fragment {
        input,
        output,
        wants: root != hosts.rank || hosts.leads(),
        gather: if is_of_another { Gather::From(hosts.index(root)) } else { Gather::Nothing },
        between: Kind::Broadcast { root: hosts.host(root) },
        spreads: true,
    })
}

fn cut(
    input: Range<usize>,
    output: Range<usize>,
    fragment: impl Fn(Range<usize>, Range<usize>) -> Fragment,
) -> Vec<Fragment> {
    let starts = (0..input.len().max(1)).step_by(FRAGMENT_BYTES);
    let of = |whole: &Range<usize>, start: usize| {
        let end = whole.end.min(whole.start + start + FRAGMENT_BYTES);
        whole.start + start..end
    };
    starts.map(|start| fragment(of(&input, start), of(&output, start))).collect()
}

#[cfg(test)]
mod tests {
    use tributary_numeric::DType;

    use super::*;

    #[test]
    fn every_host_has_ranks_and_the_first_leads() {
        for wrong in [vec![], vec![0, 2], vec![1, 1], vec![u16::MAX]] {
            assert_eq!(Hosts::new(wrong, 0), None);
        }
        assert_eq!(Hosts::new(vec![0, 1], 2), None);
        for (hosts, are_alike) in [(vec![0, 0, 1], false), (vec![0, 1, 1, 1], false), (vec![1, 0], true)] {
            assert_eq!(Hosts::new(hosts, 0).unwrap().are_alike(), are_alike);
        }
        let hosts = Hosts::new(vec![0, 1, 1, 0], 3).unwrap();
        assert_eq!((hosts.count(), hosts.own(), hosts.index(3), hosts.leads()), (2, 0, 1, false));
        assert_eq!(hosts.ranks_of(1), [1, 2]);
    }

    #[test]
    fn every_rank_brings_the_same_fragments_to_its_host_and_every_host_to_the_network() {
        let kinds = [
            Kind::AllReduce,
            Kind::Reduce { root: 3 },
            Kind::ReduceScatter,
            Kind::AllGather,
            Kind::Broadcast { root: 1 },
        ];
        for (kind, hosts) in
            kinds.into_iter().flat_map(|kind| [[0, 1, 2, 0, 2, 1], [0, 1, 2, 2, 2, 1]].map(|of| (kind, of)))
        {
            for elements in [0, 6, 3_000_006] {
                let operation = Description { kind, dtype: DType::F32, op: ReduceOp::Sum, elements };
                let on_hosts = |rank| Hosts::new(hosts.to_vec(), rank).unwrap();
                let of = |rank| fragments(&operation, &on_hosts(rank));
                let first = of(0);
                for rank in 0..6 {
                    let hosts = on_hosts(rank);
                    let between: Vec<_> = of(rank).iter().map(|one| (one.between, one.input.clone())).collect();
                    let expected: Vec<_> = first.iter().map(|one| (one.between, one.input.clone())).collect();
                    assert_eq!(between, expected, "{operation}");
                    let leader = hosts.ranks_of(hosts.own())[0];
                    let in_memory = |all: &[Fragment]| -> Vec<_> {
                        all.iter().map(|one| (one.gather, one.spreads, one.input.len())).collect()
                    };
                    assert_eq!(in_memory(&of(rank)), in_memory(&of(leader)), "{operation}");
                }
            }
        }
    }
}
