//! What programs read of a refusal: its code, and the rank that it is about.

use crate::admission::job_shape::JobShape;
use crate::admission::refusal::Refusal;
use crate::names::JobName;

impl Refusal {
    /// The refusal of a job whose smallest shape does not fit.
    pub(crate) fn full(job: &JobName, smallest: &JobShape, free: u64, total: u64) -> Refusal {
        Refusal::Full {
            job: job.clone(),
            free,
            total,
            need: smallest.bytes(),
            slots: smallest.slots,
            elements: smallest.elements_per_packet,
            world_size: smallest.world_size,
            less: smallest.savings(),
        }
    }

    /// A code that programs can rely on.
    pub fn code(&self) -> &str {
        match self {
            Refusal::BadName(_) => "bad_name",
            Refusal::BadWorldSize { .. } => "bad_world_size",
            Refusal::BadRank { .. } => "bad_rank",
            Refusal::BadElements { .. } => "bad_elements_per_packet",
            Refusal::BadSlots { .. } => "bad_slots",
            Refusal::BadTrees { .. } => "bad_trees",
            Refusal::NotInLevels { .. } => "not_in_levels",
            Refusal::NotForFabrics { .. } => "not_for_fabrics",
            Refusal::NoTrees { .. } => "no_trees",
            Refusal::PathTooNarrow { .. } => "path_too_narrow",
            Refusal::Disagreement { .. } => "disagreement",
            Refusal::RankTaken { .. } => "rank_taken",
            Refusal::JobBusy { .. } => "job_busy",
            Refusal::AddressTaken { .. } | Refusal::SwitchTwice { .. } => "address_taken",
            Refusal::AddressUnproven { .. } => "address_unproven",
            Refusal::AddressTranslated { .. } => "address_translated",
            Refusal::RankRefused { .. } => "rank_refused",
            Refusal::NotComing { .. } => "rendezvous_timeout",
            Refusal::Full { .. } | Refusal::SharedFull { .. } => "full",
            Refusal::TooManyJobs { .. } => "too_many_jobs",
            Refusal::OverQuota { .. } => "over_quota",
            Refusal::OverClientLimit { .. } => "over_client_limit",
            Refusal::OtherTenant { .. } => "other_tenant",
            Refusal::WatchedAlready { .. } => "too_many_watches",
            Refusal::UnknownJob { .. } => "unknown_job",
            Refusal::WrongKey { .. } => "wrong_key",
            Refusal::NotASwitch { .. } => "not_a_switch",
            Refusal::NewerRequest { .. } => "newer_request",
            Refusal::NotInstalled { .. } => "not_installed",
            Refusal::ShardsDiffer { .. } => "shards_differ",
            Refusal::ParentSilent { .. } => "parent_silent",
            Refusal::Parent { code, .. } => code,
            Refusal::OfferBelow => "offer_below",
            Refusal::ServerUnproven { .. } => "server_unproven",
            Refusal::NotAServer { .. } => "not_a_server",
            Refusal::OfferOver => "offer_over",
            Refusal::HostServes { .. } => "host_serves",
            Refusal::TooManyServers { .. } => "too_many_servers",
            Refusal::Stopping => "stopping",
        }
    }

    /// Set when only this rank is refused and the others can still form the job.
    pub fn rank(&self) -> Option<u16> {
        match self {
            Refusal::RankTaken { rank, .. } | Refusal::JobBusy { rank, .. } => Some(*rank),
            Refusal::Parent { rank, .. } => *rank,
            _ => None,
        }
    }
}
