//! Why no tree can be planned.

use tributary_proto::contract::ids::Rank;

/// Why no tree can be planned, with the names of the nodes that are missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// There are no members.
    #[error("a tree needs at least one member")]
    NoMembers,
    /// The job wants no trees.
    #[error("trees = 0: a job has at least one tree")]
    NoTrees,
    /// A member has no place in the network.
    #[error("rank {rank} is on node {node}, which is no host of the network")]
    NotAHost {
        /// The member.
        rank: Rank,
        /// The node on which it is said to be.
        node: u32,
    },
    /// Two members are on one host.
    #[error("ranks {a} and {b} are both on {host}: a tree takes one rank from a host")]
    SameHost {
        /// One rank.
        a: Rank,
        /// The other rank.
        b: Rank,
        /// Their host.
        host: String,
    },
    /// The root is not a switch that is alive.
    #[error("{node} is no switch that is alive, so no tree can end in it")]
    NotARoot {
        /// The would-be root.
        node: String,
    },
    /// A host's only cable is dead, or the switch at its other end.
    #[error("rank {rank} on {host} is cut off: {dead} is dead")]
    CutOff {
        /// The member's rank.
        rank: Rank,
        /// Its host.
        host: String,
        /// The cable or switch.
        dead: String,
    },
    /// A switch that every tree needs has no memory left.
    #[error("{switch} is full: a tree needs {need} bytes there for {children} children, and {room} are free")]
    Full {
        /// The switch.
        switch: String,
        /// Children that it would have.
        children: usize,
        /// Bytes that the tree needs there.
        need: u64,
        /// Bytes that are free there.
        room: u64,
    },
    /// Some member cannot reach the root.
    #[error("no way that is alive and has memory leads from {host}, the host of rank {rank}, to {root}")]
    NoWay {
        /// The member's rank.
        rank: Rank,
        /// Its host.
        host: String,
        /// The root.
        root: String,
    },
    /// No switch reaches all members.
    #[error("no switch connects all ranks: {}", missing(shut))]
    NoRoot {
        /// Switches that are dead or full.
        shut: Vec<String>,
    },
}

fn missing(shut: &[String]) -> String {
    match shut {
        [] => "too many cables are dead".into(),
        [only] => format!("{only} is dead or full"),
        all => format!("{} are dead or full", all.join(", ")),
    }
}
