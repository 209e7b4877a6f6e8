//! Every refusal of the control plane: one sentence for people, one code for programs.

use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::time::Span;

use crate::admission::operator_act::OperatorAct;
use crate::names::{BadName, Client, JobName};
use crate::wording::{HumanBytes, Ranks, for_fabrics, seconds};

/// Why a join or a leave was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name would need quoting.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// The job has no ranks, or too many: how many, the most of such a job, and what limits it, if not every job.
    #[error("a job{2} has 1 to {1} ranks, not {0}")]
    BadWorldSize(u16, u16, &'static str),
    /// The rank is not below its world size.
    #[error("rank {rank} is outside a world size of {world_size}: ranks go from 0 to {}", world_size - 1)]
    BadRank {
        /// The rank.
        rank: u16,
        /// The rank's world size.
        world_size: u16,
    },
    /// The packet has no elements, or more than a datagram holds.
    #[error("a packet carries 1 to 16128 elements, not {requested}")]
    BadElements {
        /// The number that was requested.
        requested: u16,
    },
    /// The pool has no slots, or more than the switch ever grants.
    #[error("a job has 1 to {most} slots on this switch, not {requested}")]
    BadSlots {
        /// The number that was requested.
        requested: u16,
        /// The most that are granted.
        most: u16,
    },
    /// The job has no trees, or more than there can be.
    #[error("a job has 1 to {most} trees, not {requested}")]
    BadTrees {
        /// The number that was requested.
        requested: u16,
        /// The most that a job has.
        most: u16,
    },
    /// Jobs of the protocol share a switch's memory, and this switch is one of several in levels.
    #[error(
        "{protocol} sums in a switch that stands alone or in a fabric, and this switch is one of several in levels: name one \
         that stands alone or a switch of a fabric (docs/fabric.md), or take another protocol"
    )]
    NotInLevels {
        /// The protocol's name.
        protocol: &'static str,
    },
    /// The protocol is for single switches, and this switch is in a fabric.
    #[error("{protocol} is not for a fabric: take {}, or a switch that stands alone", for_fabrics().join(" or "))]
    NotForFabrics {
        /// The protocol's name.
        protocol: &'static str,
    },
    /// The request asks for trees, but such a job has none.
    #[error("trees = {requested}: {why}")]
    NoTrees {
        /// The number that was requested.
        requested: u16,
        /// The reason.
        why: String,
    },
    /// The packet has more elements than the path of a rank carries.
    #[error(
        "rank {rank}'s path to the switch carries {fit} elements per packet, and job '{job}' asks for {requested}: ask for \
         fewer elements per packet or raise the MTU of that path"
    )]
    PathTooNarrow {
        /// The job.
        job: JobName,
        /// The rank.
        rank: u16,
        /// Elements that fit.
        fit: u16,
        /// Elements that were requested.
        requested: u16,
    },
    /// The ranks cannot be one job. Every rank of the job is told the same.
    #[error("the ranks of job '{job}' disagree on {what}; start all of them with the same")]
    Disagreement {
        /// The job.
        job: JobName,
        /// The setting on which they disagree, and which ranks say what.
        what: String,
    },
    /// Another process has this rank and is alive.
    #[error(
        "rank {rank} of job '{job}' is taken by a live process at {holder}: give this process another rank or another \
         job name, or stop that one"
    )]
    RankTaken {
        /// The job.
        job: JobName,
        /// The rank.
        rank: u16,
        /// The address of that process.
        holder: SocketAddr,
    },
    /// The name belongs to a running job whose members are all there, and this rank is not one of them.
    #[error(
        "job '{job}' is running with {world_size} ranks, all alive, and rank {rank} is none of them: take another job name \
         or wait until it ends"
    )]
    JobBusy {
        /// The job.
        job: JobName,
        /// The job's world size.
        world_size: u16,
        /// The rank that came.
        rank: u16,
    },
    /// Two ranks name one UDP address.
    #[error("ranks {a} and {b} of job '{job}' both name the UDP address {addr}: each rank needs a socket of its own")]
    AddressTaken {
        /// The job.
        job: JobName,
        /// One rank.
        a: u16,
        /// The other rank.
        b: u16,
        /// The address that both name.
        addr: SocketAddr,
    },
    /// Two child switches name one UDP address.
    #[error("two child switches have come to job '{job}' with the UDP address {addr}: is one of them an old process?")]
    SwitchTwice {
        /// The job.
        job: JobName,
        /// The address that both name.
        addr: SocketAddr,
    },
    /// The process that joins does not answer at the address that it names.
    #[error(
        "nobody who joins job '{job}' answers at the UDP address {addr}: packets must come from the process that joins, \
         and UDP must pass between it and the switch in both directions"
    )]
    AddressUnproven {
        /// The job.
        job: JobName,
        /// The address.
        addr: SocketAddr,
    },
    /// The address of the process that joins is translated on the way, so that packets to it do not arrive.
    #[error(
        "the process that joins job '{job}' has the address {own}, and its requests come from {seen}: a gateway translates \
         addresses (NAT), and packets of the switch do not come back through it; give the process the network of its host \
         (docker run --network host, hostNetwork in Kubernetes), or a route without translation"
    )]
    AddressTranslated {
        /// The job.
        job: JobName,
        /// The address as the process knows it.
        own: IpAddr,
        /// The address from which its requests come.
        seen: IpAddr,
    },
    /// Another rank of the job cannot take part, so that the job cannot form.
    #[error("rank {rank} came to job '{job}' and was refused: {why}")]
    RankRefused {
        /// The job.
        job: JobName,
        /// The rank.
        rank: u16,
        /// What that rank was told.
        why: String,
    },
    /// The rendezvous is over, and some ranks did not come.
    #[error(
        "{} of {world_size} did not come within {} s (job '{job}'): start {}, or look why {} not reach the switch",
        Ranks(missing), seconds(*waited), if missing.len() == 1 { "it" } else { "them" },
        if missing.len() == 1 { "it does" } else { "they do" }
    )]
    NotComing {
        /// The job.
        job: JobName,
        /// The ranks that did not come, ascending.
        missing: Vec<u16>,
        /// How many ranks were expected.
        world_size: u16,
        /// How long the most impatient rank waited.
        waited: Span,
    },
    /// Not even the smallest pool fits.
    #[error(
        "the switch is full: {} of {} are free and job '{job}' needs at least {} ({slots} slots of {elements} elements \
         for {world_size} ranks); {less}wait until another job ends, ask for fewer elements per packet, or start the switch \
         with more memory", HumanBytes(*free), HumanBytes(*total), HumanBytes(*need)
    )]
    Full {
        /// The job.
        job: JobName,
        /// Free bytes.
        free: u64,
        /// All bytes.
        total: u64,
        /// Bytes of the smallest pool.
        need: u64,
        /// Slots of the smallest pool.
        slots: u16,
        /// Elements per packet.
        elements: u16,
        /// Ranks.
        world_size: u16,
        /// Settings that need less memory: [`JobShape::savings`](crate::JobShape::savings).
        less: String,
    },
    /// There is no memory for the machine that the jobs of the protocol share.
    #[error(
        "the switch is full: {} of {} are free, and job '{job}' would be the first of {protocol}, whose jobs share {}: wait \
         until another job ends, start the switch with more memory, or choose fewer entries for {protocol} there",
        HumanBytes(*free), HumanBytes(*total), HumanBytes(*need)
    )]
    SharedFull {
        /// The job.
        job: JobName,
        /// The protocol's name.
        protocol: &'static str,
        /// Free bytes.
        free: u64,
        /// All bytes.
        total: u64,
        /// Bytes of that machine.
        need: u64,
    },
    /// The switch has as many jobs as it takes.
    #[error("the switch has all of the {most} jobs that it may: wait until one ends, or raise max_jobs in its file")]
    TooManyJobs {
        /// The most.
        most: u16,
    },
    /// The job needs more than the operator allows to jobs of this name.
    #[error("the switch's quota for jobs named '{pattern}' allows {allowed}, and job '{job}' needs {needed}")]
    OverQuota {
        /// The job.
        job: JobName,
        /// The quota's pattern.
        pattern: String,
        /// What it allows, in words.
        allowed: String,
        /// What the job needs, in words.
        needed: String,
    },
    /// The job needs more than one client may have.
    #[error(
        "this switch allows {client} {allowed}, and job '{job}' needs {needed}: end another job, or ask its operator for more"
    )]
    OverClientLimit {
        /// The job.
        job: JobName,
        /// The client.
        client: Client,
        /// What the client may have, in words.
        allowed: String,
        /// What the job needs, in words.
        needed: String,
    },
    /// The name stands for a job of another tenant.
    #[error("the name '{job}' stands for a job of another tenant: take another name")]
    OtherTenant {
        /// The job.
        job: JobName,
    },
    /// A member keeps more connections than it needs.
    #[error("rank {rank} of job '{job}' watches over as many connections as one may")]
    WatchedAlready {
        /// The job.
        job: JobName,
        /// The rank.
        rank: u16,
    },
    /// No job of that name is known.
    #[error("there is no job '{job}' on this switch")]
    UnknownJob {
        /// The name.
        job: JobName,
    },
    /// Only members may speak for a job.
    #[error("that is not the key of job '{job}'")]
    WrongKey {
        /// The job.
        job: JobName,
    },
    /// Only a switch below may speak for its ranks.
    #[error("that switch is not of job '{job}': only the switch that joined as number {wid} speaks for its ranks")]
    NotASwitch {
        /// The job.
        job: JobName,
        /// The number that the sender names.
        wid: u16,
    },
    /// The same process has sent a newer request.
    #[error("rank {rank} of job '{job}' asked again; the newer request counts")]
    NewerRequest {
        /// The job.
        job: JobName,
        /// The rank.
        rank: u16,
    },
    /// The switch's data plane could not take the job.
    #[error("the switch could not install job '{job}': {why}")]
    NotInstalled {
        /// The job.
        job: JobName,
        /// The cause.
        why: String,
    },
    /// A child switch cannot be combined with this one.
    #[error(
        "the child switch{} has {theirs} shards and its parent {ours}: start all switches of a tree with the same \
         --cores", child.map(|addr| format!(" ({addr})")).unwrap_or_default()
    )]
    ShardsDiffer {
        /// The address of the child switch.
        child: Option<SocketAddr>,
        /// The shards of the child switch.
        theirs: u16,
        /// The shards of this switch.
        ours: u16,
    },
    /// The parent switch has not answered in time.
    #[error("the parent switch has not said within {} s who else has come to job '{job}': check whether it is running", seconds(*waited))]
    ParentSilent {
        /// The job.
        job: JobName,
        /// How long the most impatient rank waited.
        waited: Span,
    },
    /// The parent switch cannot be reached, or has refused.
    #[error("{sentence}")]
    Parent {
        /// What the parent said, or why it cannot be reached.
        sentence: String,
        /// The refusal's code, for programs.
        code: String,
        /// The rank that the refusal is about, if it is about one only.
        rank: Option<u16>,
    },
    /// A server offers itself to a switch that forms no jobs.
    #[error("this switch has a parent, where its jobs are formed: offer the server to the root switch")]
    OfferBelow,
    /// The server has ended, or another process has its address now.
    #[error("this server's offer is over: it has ended, or another process offers the same address")]
    OfferOver,
    /// Another server is on the same host of a fabric.
    #[error("a host of a fabric has one server, and {at} is there already: end that one first")]
    HostServes {
        /// The address of the other server.
        at: SocketAddr,
    },
    /// The server's address is not its own.
    #[error(
        "no server answers at UDP {addr}, which this server names as its own: is a firewall in between, or does --listen \
         name another address than the way here has?"
    )]
    ServerUnproven {
        /// The address that the server names.
        addr: SocketAddr,
    },
    /// No server may be at this address.
    #[error(
        "this switch takes servers that sum for everybody's jobs from its own machine and from addresses that its operator has \
         named, and {at} is neither: start the switch with --servers {at}, or with --tokens FILE, so that a tenant's servers \
         serve that tenant"
    )]
    NotAServer {
        /// The address from which the server asks, or at which it receives.
        at: IpAddr,
    },
    /// The switch has as many servers as it can know, or as one client may offer.
    #[error(
        "the switch knows {most} servers{} already, and takes no more",
        of.as_ref().map(|client| format!(" of {client}")).unwrap_or_default()
    )]
    TooManyServers {
        /// The most.
        most: usize,
        /// The client, if there is still room for servers of other clients.
        of: Option<Client>,
    },
    /// An operator has acted.
    #[error(transparent)]
    Operator(#[from] OperatorAct),
    /// The switch is ending.
    #[error("the switch is stopping: join again when it is back")]
    Stopping,
    /// A next program takes the joins.
    #[error("a job of this name still runs under the switch's earlier program: join again when it has ended")]
    HandedOver,
}
