//! What can go wrong with a group, in sentences for people.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::ServerId;
use tributary_proto::contract::protocol::Refusal;
use tributary_proto::tensors::SparseError;

use super::failure_detector::JobFailure;
use crate::rendezvous::JoinError;

/// Why a worker could not join its job.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An option has a value that is not possible.
    #[error("{0}")]
    Option(String),
    /// The switch's name has no address.
    #[error("cannot find the switch {switch}: {source}")]
    Resolve {
        /// The name as it was given.
        switch: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no socket, or no route to the switch.
    #[error("cannot open a UDP socket towards the switch {switch}: {source}")]
    Socket {
        /// The switch.
        switch: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The control API refused the join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The control API works, but packets do not arrive.
    #[error(
        "the switch {switch} admitted job \"{job}\", but UDP packets to {shard} are not answered; is a firewall in \
         between, or does the switch listen at another address?"
    )]
    UdpSilent {
        /// The switch.
        switch: String,
        /// The job.
        job: String,
        /// The silent shard of the switch.
        shard: SocketAddr,
    },
    /// A server of the job does not answer.
    #[error(
        "the switch {switch} gave job \"{job}\" server {server} ({addr}), which does not answer: has it ended, or is a \
         firewall in between?"
    )]
    ServerSilent {
        /// The switch.
        switch: String,
        /// The job.
        job: String,
        /// The server's number in the job.
        server: ServerId,
        /// The address where the server receives packets.
        addr: SocketAddr,
    },
    /// Short packets arrive, but packets of the job's length do not.
    #[error(
        "short UDP packets reach {shard}, packets of {bytes} bytes do not: the path has a smaller MTU than the {mtu} \
         that the kernel assumes; choose fewer elements per packet"
    )]
    PathTooNarrow {
        /// The shard, or the server, that was tried.
        shard: SocketAddr,
        /// UDP payload bytes of the job's packets.
        bytes: usize,
        /// The path's MTU as the kernel knows it.
        mtu: u32,
    },
}

/// Why a collective failed. Every text names the job, the switch and this rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The collective failed; the group is broken.
    #[error("{context}: {sentence}")]
    Failed {
        /// Job, switch and rank.
        context: String,
        /// What is wrong and, where known, what to do.
        sentence: String,
        /// The machine's reason.
        cause: CollectiveError,
    },
    /// The switch said that members are gone, or is gone itself, and no collective made progress any more.
    #[error("{context}: {failure}")]
    PeerLost {
        /// Job, switch and rank.
        context: String,
        /// What is gone.
        failure: JobFailure,
    },
    /// An earlier collective failed.
    #[error("{context}: an earlier collective failed ({cause}); connect again to go on")]
    Broken {
        /// Job, switch and rank.
        context: String,
        /// Why the earlier one failed.
        cause: CollectiveError,
    },
    /// The time of a wait was over before the collective was.
    #[error("{context}: the collective is still running; wait for it again")]
    StillRunning {
        /// Job, switch and rank.
        context: String,
    },
    /// Input and output differ in length.
    #[error("the input has {input} elements and the output {output}; they must agree")]
    Lengths {
        /// Elements of the input.
        input: usize,
        /// Elements of the output.
        output: usize,
    },
    /// The result does not have the elements to keep.
    #[error("cannot keep the elements {kept:?} of {elements}")]
    KeptRange {
        /// The elements to keep.
        kept: Range<usize>,
        /// Elements of the whole.
        elements: usize,
    },
    /// The lengths do not fit a reduce-scatter or an all-gather.
    #[error("{whole} elements are not those of {world_size} ranks with {chunk} each; all chunks are of one length")]
    ChunkLengths {
        /// Elements of all ranks together.
        whole: usize,
        /// Elements of this rank.
        chunk: usize,
        /// Ranks of the job.
        world_size: u16,
    },
    /// The protocol cannot do this.
    #[error(transparent)]
    Refused(Refusal),
    /// Indices and values that do not make a sparse tensor.
    #[error(transparent)]
    Sparse(SparseError),
    /// The root of a reduce or a broadcast is not a rank of the job.
    #[error("rank {root} cannot be the root: the job has ranks 0 to {}", world_size - 1)]
    NoRoot {
        /// The rank that was named.
        root: u16,
        /// Ranks of the job.
        world_size: u16,
    },
    /// A fork used the group of the process from which it was forked.
    #[error("{context}: this group was made before a fork; connect in the new process")]
    Forked {
        /// Job, switch and rank.
        context: String,
    },
    /// A panic in the driver: a bug of this program.
    #[error("{context}: the driver has stopped after a fault of its own; connect again to go on")]
    DriverFault {
        /// Job, switch and rank.
        context: String,
    },
}
