//! What programs read of a refusal: its code, and the rank that it is about.

use crate::admission::job_shape::JobShape;
use crate::admission::operator_act::OperatorAct;
use crate::admission::refusal::Refusal;
use crate::names::JobName;

/// What a refusal is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concerns {
    Job,
    Switch,
}

/// Declares the codes: the text of each, and what it is about.
macro_rules! codes {
    ($($code:ident = $text:literal, $concerns:ident;)*) => {
        #[derive(Clone, Copy)]
        enum Code {
            $($code,)*
        }

        impl Code {
            const ALL: &[Code] = &[$(Code::$code,)*];

            const fn text(self) -> &'static str {
                match self {
                    $(Code::$code => $text,)*
                }
            }

            const fn concerns(self) -> Concerns {
                match self {
                    $(Code::$code => Concerns::$concerns,)*
                }
            }
        }
    };
}

codes! {
    BadName = "bad_name", Job;
    BadWorldSize = "bad_world_size", Job;
    BadRank = "bad_rank", Job;
    BadElementsPerPacket = "bad_elements_per_packet", Job;
    BadSlots = "bad_slots", Switch;
    BadTrees = "bad_trees", Job;
    NotInLevels = "not_in_levels", Job;
    NotForFabrics = "not_for_fabrics", Job;
    NoTrees = "no_trees", Job;
    PathTooNarrow = "path_too_narrow", Job;
    Disagreement = "disagreement", Job;
    RankTaken = "rank_taken", Job;
    JobBusy = "job_busy", Job;
    AddressTaken = "address_taken", Job;
    AddressUnproven = "address_unproven", Job;
    AddressTranslated = "address_translated", Job;
    RankRefused = "rank_refused", Job;
    RendezvousTimeout = "rendezvous_timeout", Job;
    Full = "full", Switch;
    TooManyJobs = "too_many_jobs", Switch;
    OverQuota = "over_quota", Switch;
    OverClientLimit = "over_client_limit", Switch;
    OtherTenant = "other_tenant", Job;
    TooManyWatches = "too_many_watches", Switch;
    UnknownJob = "unknown_job", Job;
    WrongKey = "wrong_key", Job;
    NotASwitch = "not_a_switch", Job;
    NewerRequest = "newer_request", Job;
    NotInstalled = "not_installed", Switch;
    ShardsDiffer = "shards_differ", Job;
    ParentSilent = "parent_silent", Switch;
    OfferBelow = "offer_below", Switch;
    ServerUnproven = "server_unproven", Job;
    NotAServer = "not_a_server", Switch;
    OfferOver = "offer_over", Job;
    HostServes = "host_serves", Switch;
    TooManyServers = "too_many_servers", Switch;
    Cordoned = "cordoned", Switch;
    Banned = "banned", Switch;
    EndedByOperator = "ended_by_operator", Job;
    NoMember = "no_member", Job;
    Stopping = "stopping", Switch;
    HandedOver = "handed_over", Switch;
}

impl Refusal {
    /// The code of [`Refusal::HandedOver`].
    pub const HANDED_OVER: &str = Code::HandedOver.text();

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
        let code = match self {
            Refusal::BadName(_) => Code::BadName,
            Refusal::BadWorldSize { .. } => Code::BadWorldSize,
            Refusal::BadRank { .. } => Code::BadRank,
            Refusal::BadElements { .. } => Code::BadElementsPerPacket,
            Refusal::BadSlots { .. } => Code::BadSlots,
            Refusal::BadTrees { .. } => Code::BadTrees,
            Refusal::NotInLevels { .. } => Code::NotInLevels,
            Refusal::NotForFabrics { .. } => Code::NotForFabrics,
            Refusal::NoTrees { .. } => Code::NoTrees,
            Refusal::PathTooNarrow { .. } => Code::PathTooNarrow,
            Refusal::Disagreement { .. } => Code::Disagreement,
            Refusal::RankTaken { .. } => Code::RankTaken,
            Refusal::JobBusy { .. } => Code::JobBusy,
            Refusal::AddressTaken { .. } | Refusal::SwitchTwice { .. } => Code::AddressTaken,
            Refusal::AddressUnproven { .. } => Code::AddressUnproven,
            Refusal::AddressTranslated { .. } => Code::AddressTranslated,
            Refusal::RankRefused { .. } => Code::RankRefused,
            Refusal::NotComing { .. } => Code::RendezvousTimeout,
            Refusal::Full { .. } | Refusal::SharedFull { .. } => Code::Full,
            Refusal::TooManyJobs { .. } => Code::TooManyJobs,
            Refusal::OverQuota { .. } => Code::OverQuota,
            Refusal::OverClientLimit { .. } => Code::OverClientLimit,
            Refusal::OtherTenant { .. } => Code::OtherTenant,
            Refusal::WatchedAlready { .. } => Code::TooManyWatches,
            Refusal::UnknownJob { .. } => Code::UnknownJob,
            Refusal::WrongKey { .. } => Code::WrongKey,
            Refusal::NotASwitch { .. } => Code::NotASwitch,
            Refusal::NewerRequest { .. } => Code::NewerRequest,
            Refusal::NotInstalled { .. } => Code::NotInstalled,
            Refusal::ShardsDiffer { .. } => Code::ShardsDiffer,
            Refusal::ParentSilent { .. } => Code::ParentSilent,
            Refusal::OfferBelow => Code::OfferBelow,
            Refusal::ServerUnproven { .. } => Code::ServerUnproven,
            Refusal::NotAServer { .. } => Code::NotAServer,
            Refusal::OfferOver => Code::OfferOver,
            Refusal::HostServes { .. } => Code::HostServes,
            Refusal::TooManyServers { .. } => Code::TooManyServers,
            Refusal::Operator(OperatorAct::Cordoned) => Code::Cordoned,
            Refusal::Operator(OperatorAct::Banned { .. }) => Code::Banned,
            Refusal::Operator(OperatorAct::Ended { .. }) => Code::EndedByOperator,
            Refusal::Operator(OperatorAct::NoMember { .. }) => Code::NoMember,
            Refusal::Stopping => Code::Stopping,
            Refusal::HandedOver => Code::HandedOver,
            Refusal::Parent { code, .. } => return code,
        };
        code.text()
    }

    /// True if a refusal with this code is about the switch that refuses, its limits or its state, rather than about the job:
    /// then a person must know which switch it is.
    pub fn concerns_switch(code: &str) -> bool {
        Code::ALL.iter().any(|known| known.text() == code && known.concerns() == Concerns::Switch)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Client;

    #[test]
    fn what_one_client_may_have_is_a_limit_of_the_switch_that_refuses() {
        let job = JobName::new("a").unwrap();
        let client = Client::at([10, 0, 0, 1].into());
        let (allowed, needed) = ("1 job at a time".into(), "one more".into());
        let limit = Refusal::OverClientLimit { job: job.clone(), client, allowed, needed };
        assert!(Refusal::concerns_switch(limit.code()) && Refusal::concerns_switch(Refusal::Stopping.code()));
        assert!(!Refusal::concerns_switch(Refusal::OtherTenant { job }.code()));
        assert!(!Refusal::concerns_switch("a code of a newer switch"));
    }

    #[test]
    fn each_code_is_there_once() {
        let mut texts: Vec<&str> = Code::ALL.iter().map(|code| code.text()).collect();
        texts.sort_unstable();
        let all = texts.len();
        texts.dedup();
        assert_eq!(texts.len(), all);
    }
}
