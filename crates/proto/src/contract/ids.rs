//! Newtypes for all numbers that count or name something.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A job on one switch or fabric: a set of workers that reduce together.
    JobId(u16)
}
id! {
    /// A worker of a job by its number in the job: 0 to world_size - 1.
    Rank(u16)
}
id! {
    /// A child of one switch, by its number there: a worker, or a switch below. SwitchML's packets call it `wid`. If
    /// one switch sums for the whole job, a worker's number there is its rank; in levels of switches it is not.
    ChildId(u16)
}
impl ChildId {
    /// The child that a rank is at a switch that sums for the whole job.
    pub const fn of_rank(rank: Rank) -> ChildId {
        ChildId(rank.0)
    }
}
id! {
    /// A port of one switch. In software: one remote UDP address.
    PortId(u16)
}
id! {
    /// A host or a switch of the network that the driver can route to.
    NodeId(u32)
}
id! {
    /// A multicast group that was installed in one switch.
    GroupId(u16)
}
id! {
    /// One of the independent trees among which a job's slots are divided. In a star, each is a shard of the one switch
    /// (a pipeline, a core); in a fabric, each has a root and switches of its own.
    TreeId(u16)
}
id! {
    /// A server of a job: a host that sums or answers for other hosts, 0 to the number of servers - 1.
    ServerId(u16)
}
id! {
    /// A collective of one host, counted from 0 in the order of submission.
    OpId(u64)
}

impl PortId {
    /// The packet's source is none of the switch's ports.
    pub const UNKNOWN: PortId = PortId(u16::MAX);
}

/// The secret of a job's members. It is drawn at random when the job is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobKey(pub u64);

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

/// A set of ports of one switch. Only the first 256 ports fit, as dynamic trees need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortSet([u64; 4]);

impl PortSet {
    /// The empty set.
    pub const EMPTY: PortSet = PortSet([0; 4]);
    /// The number of ports that fit: 0 to `CAPACITY` - 1.
    pub const CAPACITY: usize = 256;

    /// Adds a port; false if the set had it. A port of `CAPACITY` or above is a bug of the caller.
    pub fn insert(&mut self, port: PortId) -> bool {
        let (word, bit) = (port.index() / 64, 1 << (port.index() % 64));
        let fresh = self.0[word] & bit == 0;
        self.0[word] |= bit;
        fresh
    }

    /// Removes a port; true if the set had it.
    pub fn remove(&mut self, port: PortId) -> bool {
        let (word, bit) = (port.index() / 64, 1 << (port.index() % 64));
        let was = self.0[word] & bit != 0;
        self.0[word] &= !bit;
        was
    }

    /// True if the port is in the set.
    pub fn contains(&self, port: PortId) -> bool {
        port.index() < PortSet::CAPACITY && self.0[port.index() / 64] & (1 << (port.index() % 64)) != 0
    }

    /// Number of ports.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if no port is in the set.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// The ports in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = PortId> + Clone + '_ {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            let mut rest = bits;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    PortId((word as u32 * 64 + bit) as u16)
                })
            })
        })
    }
}
