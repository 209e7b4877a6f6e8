//! Every way in which the control plane says no: one sentence for people, one code for programs.

use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::time::Span;

use crate::client::Client;
use crate::memory::Bytes;
use crate::name::{BadName, JobName};
use crate::ranks::Ranks;

/// Why a join or a leave was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A name that would need quoting.
    #[error(transparent)]
    BadName(#[from] BadName),
    /// A world of no ranks, or of too many.
    #[error("a job has 1 to {most} ranks, not {world}", most = JobConfig::MAX_WORLD)]
    BadWorld {
        /// What was asked for.
        world: u16,
    },
    /// A rank outside its world.
    #[error("rank {rank} is outside a world of {world}: ranks go from 0 to {}", world - 1)]
    BadRank {
        /// The rank.
        rank: u16,
        /// Its world.
        world: u16,
    },
    /// A packet of no elements, or of more than a datagram holds.
    #[error("a packet carries 1 to 16128 elements, not {asked}")]
    BadElements {
        /// What was asked for.
        asked: u16,
    },
    /// A pool of no slots, or of more than the switch ever grants.
    #[error("a job has 1 to {most} slots on this switch, not {asked}")]
    BadSlots {
        /// What was asked for.
        asked: u16,
        /// The most that are granted.
        most: u16,
    },
    /// No trees, or more than there can be.
    #[error("a job has 1 to {most} trees, not {asked}")]
    BadTrees {
        /// What was asked for.
        asked: u16,
        /// The most that a job has.
        most: u16,
    },
    /// More elements per packet than a rank's path carries.
    #[error(
        "rank {rank}'s path to the switch carries {fit} elements per packet, and job '{job}' asks for {asked}: ask for \
         fewer elements per packet or raise the MTU of that path"
    )]
    PathTooNarrow {
        /// The job.
        job: JobName,
        /// The rank.
        rank: u16,
        /// Elements that fit.
        fit: u16,
        /// Elements that were asked for.
        asked: u16,
    },
    /// Ranks that cannot be one job. Every rank of the job is told the same.
    #[error("the ranks of job '{job}' disagree on {what}; start all of them with the same")]
    Disagreement {
        /// The job.
        job: JobName,
        /// On what, and who says what.
        what: String,
    },
    /// Another process is this rank, and alive.
    #[error(
        "rank {rank} of job '{job}' is taken by a live process at {holder}: give this process another rank or another \
         job name, or stop that one"
    )]
    RankTaken {
        /// The job.
        job: JobName,
        /// The rank.
        rank: u16,
        /// Who has it.
        holder: SocketAddr,
    },
    /// The name belongs to a running job whose members are all there, and this rank is none of them.
    #[error(
        "job '{job}' is running with {world} ranks, all alive, and rank {rank} is none of them: take another job name \
         or wait until it ends"
    )]
    JobBusy {
        /// The job.
        job: JobName,
        /// Its world.
        world: u16,
        /// The rank that came.
        rank: u16,
    },
    /// Two ranks that name one UDP address.
    #[error("ranks {a} and {b} of job '{job}' both name the UDP address {addr}: each rank needs a socket of its own")]
    AddressTaken {
        /// The job.
        job: JobName,
        /// One rank.
        a: u16,
        /// The other.
        b: u16,
        /// What both name.
        addr: SocketAddr,
    },
    /// Two switches below that name one UDP address.
    #[error("two switches below have come to job '{job}' with the UDP address {addr}: is one of them an old process?")]
    SwitchTwice {
        /// The job.
        job: JobName,
        /// What both name.
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
    /// The rendezvous is over and someone did not come.
    #[error(
        "{} of {world} did not come within {} s (job '{job}'): start {}, or look why {} not reach the switch",
        Ranks(missing), waited.as_secs_f64(), if missing.len() == 1 { "it" } else { "them" },
        if missing.len() == 1 { "it does" } else { "they do" }
    )]
    NotComing {
        /// The job.
        job: JobName,
        /// Who did not come, ascending.
        missing: Vec<u16>,
        /// How many ranks were expected.
        world: u16,
        /// How long the most impatient rank waited.
        waited: Span,
    },
    /// Not even the smallest pool fits.
    #[error(
        "the switch is full: {} of {} are free and job '{job}' needs at least {} ({slots} slots of {elements} elements \
         for {world} ranks); {less}wait until another job ends, ask for fewer elements per packet, or start the switch \
         with more memory", Bytes(*free), Bytes(*total), Bytes(*need)
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
        world: u16,
        /// What needs less memory: [`JobShape::savings`](crate::JobShape::savings).
        less: String,
    },
    /// As many jobs as the switch takes.
    #[error("the switch has all of the {most} jobs that it may: wait until one ends, or raise max_jobs in its file")]
    TooManyJobs {
        /// The most.
        most: u16,
    },
    /// More than the operator allows to jobs of this name.
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
    /// More than one client may have.
    #[error(
        "this switch allows {client} {allowed}, and job '{job}' needs {needed}: end another job, or ask its operator for more"
    )]
    OverShare {
        /// The job.
        job: JobName,
        /// Who.
        client: Client,
        /// What it may have, in words.
        allowed: String,
        /// What the job needs, in words.
        needed: String,
    },
    /// The name stands for a job of somebody else.
    #[error("the name '{job}' stands for a job of another tenant: take another name")]
    OtherTenant {
        /// The job.
        job: JobName,
    },
    /// A member that keeps more connections than it needs.
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
    /// The same process asked again; the newer request counts.
    #[error("rank {rank} of job '{job}' asked again; the newer request counts")]
    AskedAgain {
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
    /// A switch below that cannot be joined with this one.
    #[error(
        "the switch below{} has {theirs} shards and the one above it {ours}: start all switches of a tree with the same \
         --cores", below.map(|addr| format!(" ({addr})")).unwrap_or_default()
    )]
    ShardsDiffer {
        /// Where it is.
        below: Option<SocketAddr>,
        /// Its shards.
        theirs: u16,
        /// Those of this switch.
        ours: u16,
    },
    /// The switch above has not answered in time.
    #[error("the switch above has not said within {} s who else has come to job '{job}': look after it", waited.as_secs_f64())]
    AboveSilent {
        /// The job.
        job: JobName,
        /// How long the most impatient rank waited.
        waited: Span,
    },
    /// The switch above cannot be reached, or said no.
    #[error("{sentence}")]
    Above {
        /// What it said, or how it cannot be reached.
        sentence: String,
        /// Its word for programs.
        code: String,
        /// The rank that it is about, if it is about one only.
        rank: Option<u16>,
    },
    /// A server at a switch that forms no jobs.
    #[error("this switch is below another one, where its jobs are formed: offer the server to the switch at the top")]
    OfferBelow,
    /// A server that ends, or whose address another process has now.
    #[error("this server's offer is over: it has ended, or another process offers the same address")]
    OfferOver,
    /// A server whose address is not its own.
    #[error(
        "no server answers at UDP {addr}, which this server names as its own: is a firewall in between, or does --listen \
         name another address than the way here has?"
    )]
    ServerUnproven {
        /// What it names.
        addr: SocketAddr,
    },
    /// A server where none may be.
    #[error(
        "this switch takes servers that sum for everybody's jobs from its own machine and from addresses that its operator has \
         named, and {at} is neither: start the switch with --servers {at}, or with --tokens FILE, so that a tenant's servers \
         serve that tenant"
    )]
    NotAServer {
        /// Where it asks from, or receives.
        at: IpAddr,
    },
    /// As many servers as a switch knows, or as one client may offer.
    #[error(
        "the switch knows {most} servers{} already, and takes no more",
        of.as_ref().map(|client| format!(" of {client}")).unwrap_or_default()
    )]
    TooManyServers {
        /// The most.
        most: usize,
        /// Whose, if there is room for those of others.
        of: Option<Client>,
    },
    /// The switch is ending.
    #[error("the switch is stopping: join again when it is back")]
    Stopping,
}

impl Refusal {
    /// A word that programs can rely on.
    pub fn code(&self) -> &str {
        match self {
            Refusal::BadName(_) => "bad_name",
            Refusal::BadWorld { .. } => "bad_world",
            Refusal::BadRank { .. } => "bad_rank",
            Refusal::BadElements { .. } => "bad_elements_per_packet",
            Refusal::BadSlots { .. } => "bad_slots",
            Refusal::BadTrees { .. } => "bad_trees",
            Refusal::PathTooNarrow { .. } => "path_too_narrow",
            Refusal::Disagreement { .. } => "disagreement",
            Refusal::RankTaken { .. } => "rank_taken",
            Refusal::JobBusy { .. } => "job_busy",
            Refusal::AddressTaken { .. } | Refusal::SwitchTwice { .. } => "address_taken",
            Refusal::AddressUnproven { .. } => "address_unproven",
            Refusal::NotComing { .. } => "rendezvous_timeout",
            Refusal::Full { .. } => "full",
            Refusal::TooManyJobs { .. } => "too_many_jobs",
            Refusal::OverQuota { .. } => "over_quota",
            Refusal::OverShare { .. } => "over_share",
            Refusal::OtherTenant { .. } => "other_tenant",
            Refusal::WatchedAlready { .. } => "too_many_watches",
            Refusal::UnknownJob { .. } => "unknown_job",
            Refusal::WrongKey { .. } => "wrong_key",
            Refusal::AskedAgain { .. } => "asked_again",
            Refusal::NotInstalled { .. } => "not_installed",
            Refusal::ShardsDiffer { .. } => "shards_differ",
            Refusal::AboveSilent { .. } => "above_silent",
            Refusal::Above { code, .. } => code,
            Refusal::OfferBelow => "offer_below",
            Refusal::ServerUnproven { .. } => "server_unproven",
            Refusal::NotAServer { .. } => "not_a_server",
            Refusal::OfferOver => "offer_over",
            Refusal::TooManyServers { .. } => "too_many_servers",
            Refusal::Stopping => "stopping",
        }
    }

    /// The rank that it is about, if it is about one process of a job that the others may still become.
    pub fn rank(&self) -> Option<u16> {
        match self {
            Refusal::RankTaken { rank, .. } | Refusal::JobBusy { rank, .. } => Some(*rank),
            Refusal::Above { rank, .. } => *rank,
            _ => None,
        }
    }
}
