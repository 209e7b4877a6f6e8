//! Decides whether collectives can still complete, from what the switch reports of the members and from the progress so far.
//!
//! A member that has left or died has contributed to some collectives and never will to others. Who leaves in good order
//! says which collectives it has completed. Otherwise progress shows it: a collective to which all members have
//! contributed completes block after block, and a collective that lacks a contribution stands still.

use std::fmt;

use tributary_proto::contract::host::{CollectiveError, HostStats};
use tributary_proto::contract::ids::{Rank, ServerId};
use tributary_proto::contract::time::{Span, Time};

use crate::rendezvous::{Departed, ServerAddr, SwitchRanks};

/// A member had not completed a collective when it left: the collective lacks its contribution if it stands still for this
/// time.
const STALL_AFTER_LEAVE: Span = Span::from_millis(1_000);
/// The same where all members that left had completed it, so that only results can be lost. A worker that has waited for
/// others asks for them every 1.6 s, and so a dozen times.
const STALL_FOR_RESULTS: Span = Span::from_millis(20_000);
/// The same where the switch does not answer.
const STALL_WITHOUT_SWITCH: Span = Span::from_millis(1_000);
/// The same time for a member that was lost. It is shorter, because no other member can still send what is missing and
/// people wait.
const STALL_AFTER_LOSS: Span = Span::from_millis(300);
/// All members learn of the failure within this time. A member that gives up sooner may look like the culprit to the
/// others.
const PROPAGATION: Span = Span::from_millis(100);

/// Why the job cannot go on, as the control plane reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobFailure {
    /// Members, switches or servers are gone.
    Departed(Departed),
    /// The switch does not know the job, or does not answer; the sentence says which.
    NoSwitch(String),
    /// A tree of the job is broken: collectives under way can never complete, whatever still moves over other trees.
    /// The sentence says why, and what to do.
    Broken(String),
}

impl JobFailure {
    /// The ranks that are gone.
    pub fn ranks(&self) -> Vec<Rank> {
        match self {
            JobFailure::Departed(gone) => gone.members.iter().map(|gone| Rank(gone.rank)).collect(),
            JobFailure::NoSwitch(_) | JobFailure::Broken(_) => Vec::new(),
        }
    }

    /// The servers that are gone.
    pub fn servers(&self) -> Vec<ServerId> {
        match self {
            JobFailure::Departed(gone) => gone.servers.iter().map(|gone| ServerId(gone.server)).collect(),
            JobFailure::NoSwitch(_) | JobFailure::Broken(_) => Vec::new(),
        }
    }

    /// The same, with the ranks by which sentences name members.
    pub(super) fn with_ranks(mut self, name_of: impl Fn(u16) -> u16) -> JobFailure {
        if let JobFailure::Departed(Departed { members, switches, .. }) = &mut self {
            let below = switches.iter_mut().flat_map(|switch| &mut switch.ranks);
            members.iter_mut().map(|gone| &mut gone.rank).chain(below).for_each(|rank| *rank = name_of(*rank));
        }
        self
    }

    /// How many of the job's first collectives all members had completed that are gone; `None` if more is gone than members
    /// that left in good order.
    fn completed(&self) -> Option<u64> {
        match self {
            JobFailure::Departed(gone) if gone.switches.is_empty() && gone.servers.is_empty() => {
                gone.members.iter().map(|gone| gone.completed).min().flatten()
            }
            _ => None,
        }
    }
}

impl fmt::Display for JobFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Departed { members, switches, servers } = match self {
            JobFailure::Departed(gone) => gone,
            JobFailure::NoSwitch(sentence) | JobFailure::Broken(sentence) => return f.write_str(sentence),
        };
        let mut clauses: Vec<String> = servers.iter().map(server_is_gone).collect();
        clauses.extend(switches.iter().map(switch_is_gone));
        let with_switch = |rank: &u16| switches.iter().any(|switch| switch.ranks.contains(rank));
        let of = |left| members.iter().filter(move |gone| gone.has_left() == left).map(|gone| gone.rank);
        let lost: Vec<u16> = of(false).filter(|rank| !with_switch(rank)).collect();
        match lost[..] {
            [] => {}
            [_] => clauses.push(format!("{} is gone: its process ended or its host was cut off", list(&lost))),
            _ => clauses.push(format!("{} are gone: their processes ended or their hosts were cut off", list(&lost))),
        }
        let left: Vec<u16> = of(true).collect();
        if !left.is_empty() {
            let have = if left.len() == 1 { "has" } else { "have" };
            clauses.push(format!("{} {have} left the job", list(&left)));
        }
        f.write_str(&clauses.join("; "))
    }
}

fn switch_is_gone(SwitchRanks { addr, ranks }: &SwitchRanks) -> String {
    match ranks[..] {
        [] => format!("the switch above, {addr}, is gone: its process ended or it was cut off"),
        _ => format!("the switch {addr} is gone, and {} with it: its process ended or it was cut off", list(ranks)),
    }
}

fn server_is_gone(ServerAddr { server, addr }: &ServerAddr) -> String {
    format!("server {server} ({addr}) is gone: its process ended or it was cut off")
}

fn list(ranks: &[u16]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let ranks: Vec<String> = ranks.iter().map(u16::to_string).collect();
    format!("{word} {}", ranks.join(", "))
}

/// The failure, if one is known, and the time since which there was no progress.
#[derive(Default)]
pub struct FailureDetector {
    failure: Option<(Time, JobFailure)>,
    blocks: u64,
    last_progress: Time,
    gave_up_for: Option<JobFailure>,
}

impl FailureDetector {
    /// Sets what the control plane reports; `None` withdraws it.
    pub fn set_failure(&mut self, now: Time, failure: Option<JobFailure>) {
        self.failure = failure.map(|failure| (now, failure));
    }

    /// Notes that a new collective is under way.
    pub fn on_progress(&mut self, now: Time) {
        self.last_progress = now;
    }

    /// Notes whether blocks have completed since the last call.
    pub fn sample(&mut self, now: Time, stats: &HostStats) {
        let blocks = stats.blocks_in_network + stats.blocks_at_hosts;
        if blocks != self.blocks {
            (self.blocks, self.last_progress) = (blocks, now);
        }
    }

    /// When collectives under way are given up unless blocks complete before. `oldest` is the number of collectives that were
    /// submitted before the first of them.
    pub fn give_up_at(&self, oldest: u64) -> Option<Time> {
        let (known_at, failure) = self.failure.as_ref()?;
        if let JobFailure::Broken(_) = failure {
            return Some(*known_at + PROPAGATION);
        }
        if let Some(completed) = failure.completed() {
            let stall = if oldest < completed { STALL_FOR_RESULTS } else { STALL_AFTER_LEAVE };
            // What the members sent before they left may still be on its way.
            return Some(self.last_progress.max(*known_at) + stall);
        }
        let (stall, grace) = match failure {
            JobFailure::Departed(_) => (STALL_AFTER_LOSS, PROPAGATION),
            // Packets may still pass although calls fail.
            JobFailure::NoSwitch(_) | JobFailure::Broken(_) => (STALL_WITHOUT_SWITCH, PROPAGATION),
        };
        Some((self.last_progress + stall).max(*known_at + grace))
    }

    /// Notes that collectives under way are given up because of the failure.
    pub fn give_up(&mut self) {
        self.gave_up_for = self.failure.as_ref().map(|(_, failure)| failure.clone());
    }

    /// True if collectives were given up.
    pub fn has_given_up(&self) -> bool {
        self.gave_up_for.is_some()
    }

    /// The failure that explains this error: if this worker gave up, or a peer did.
    pub fn failure_for(&self, error: &CollectiveError) -> Option<&JobFailure> {
        match error {
            CollectiveError::Aborted => self.gave_up_for.as_ref(),
            CollectiveError::PeerSilent { .. } | CollectiveError::ServerSilent { .. } => {
                self.gave_up_for.as_ref().or(self.failure.as_ref().map(|(_, failure)| failure))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::Gone;

    fn millis(at: u64) -> Time {
        Time::ZERO + Span::from_millis(at)
    }

    fn gone(rank: u16, completed: Option<u64>) -> JobFailure {
        JobFailure::Departed(Departed { members: vec![Gone { rank, completed }], ..Departed::default() })
    }

    #[test]
    fn a_loss_ends_stalled_collectives_and_none_that_progress() {
        let mut failure_detector = FailureDetector::default();
        failure_detector.on_progress(millis(5_000));
        assert_eq!(failure_detector.give_up_at(0), None);
        failure_detector.set_failure(millis(7_000), Some(gone(2, None)));
        assert_eq!(failure_detector.give_up_at(0), Some(millis(7_100)), "it has stood still for long enough already");
        failure_detector.sample(millis(7_500), &HostStats { blocks_in_network: 1, ..HostStats::default() });
        assert_eq!(failure_detector.give_up_at(0), Some(millis(7_800)), "the lost rank has contributed to some");
        failure_detector.set_failure(millis(7_600), None);
        assert_eq!(failure_detector.give_up_at(0), None, "the rank was seen again");
    }

    /// A death at 5 s is known when a closed connection and its silence prove it. No block completes after what was in flight.
    #[test]
    fn a_killed_rank_or_server_ends_stalled_collectives_within_two_seconds() {
        let servers = vec![ServerAddr { server: 0, addr: "10.0.0.7:4242".parse().unwrap() }];
        let server = JobFailure::Departed(Departed { servers, ..Departed::default() });
        for failure in [gone(2, None), server] {
            let mut failure_detector = FailureDetector::default();
            let known = millis(5_000) + tributary_control::Timers::default().closed_silence();
            for (last_progress, latest) in [(5_000, 6_100), (5_999, 6_299)] {
                failure_detector.on_progress(millis(last_progress));
                failure_detector.set_failure(known, Some(failure.clone()));
                assert_eq!(failure_detector.give_up_at(0), Some(millis(latest)), "{failure}");
            }
        }
    }

    #[test]
    fn a_broken_tree_ends_collectives_that_still_progress_over_others() {
        let mut failure_detector = FailureDetector::default();
        failure_detector
            .set_failure(millis(7_000), Some(JobFailure::Broken("tree 1 ran through spine1, which is dead".into())));
        failure_detector.sample(millis(7_090), &HostStats { blocks_in_network: 1, ..HostStats::default() });
        assert_eq!(failure_detector.give_up_at(0), Some(millis(7_100)));
    }

    #[test]
    fn what_members_had_completed_when_they_left_may_still_complete_here() {
        let members = [(1, Some(9)), (2, Some(5))].map(|(rank, completed)| Gone { rank, completed }).to_vec();
        let mut failure_detector = FailureDetector::default();
        let failure = JobFailure::Departed(Departed { members, ..Departed::default() });
        failure_detector.set_failure(millis(7_000), Some(failure));
        assert_eq!(failure_detector.give_up_at(4), Some(millis(27_000)));
        assert_eq!(failure_detector.give_up_at(5), Some(millis(8_000)), "rank 2 may not have contributed to it");
    }

    #[test]
    fn a_failure_is_a_sentence_that_names_who() {
        assert_eq!(gone(3, Some(7)).to_string(), "rank 3 has left the job");
        let members = [(0, Some(2)), (1, None), (4, Some(2)), (5, None)]
            .map(|(rank, completed)| Gone { rank, completed })
            .to_vec();
        let both = JobFailure::Departed(Departed { members: members.clone(), ..Departed::default() });
        assert_eq!(
            both.to_string(),
            "ranks 1, 5 are gone: their processes ended or their hosts were cut off; ranks 0, 4 have left the job"
        );
        assert_eq!(gone(1, None).to_string(), "rank 1 is gone: its process ended or its host was cut off");
        let switch = |addr: &str, ranks: &[u16]| SwitchRanks { addr: addr.parse().unwrap(), ranks: ranks.to_vec() };
        let with_switch = JobFailure::Departed(Departed {
            members,
            switches: vec![switch("10.0.0.2:7", &[1])],
            ..Departed::default()
        });
        assert_eq!(
            with_switch.to_string(),
            "the switch 10.0.0.2:7 is gone, and rank 1 with it: its process ended or it was cut off; rank 5 is gone: its \
             process ended or its host was cut off; ranks 0, 4 have left the job"
        );
        let parent =
            JobFailure::Departed(Departed { switches: vec![switch("10.0.0.9:7", &[])], ..Departed::default() });
        let sentence = "the switch above, 10.0.0.9:7, is gone: its process ended or it was cut off";
        assert_eq!((parent.to_string().as_str(), parent.completed()), (sentence, None));
        let servers = vec![ServerAddr { server: 1, addr: "10.0.0.7:4242".parse().unwrap() }];
        let server = JobFailure::Departed(Departed {
            servers,
            members: vec![Gone { rank: 3, completed: Some(7) }],
            ..Departed::default()
        });
        let sentence = "server 1 (10.0.0.7:4242) is gone: its process ended or it was cut off; rank 3 has left the job";
        assert_eq!((server.to_string().as_str(), server.completed()), (sentence, None));
        assert_eq!(server.servers(), [ServerId(1)]);
    }
}
