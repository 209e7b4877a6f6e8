//! Judges whether collectives can still complete, by the switch's news of the members and by the progress so far.
//!
//! A member that has left or died has contributed to some collectives and never will to others. Progress shows to
//! which: a collective to which all members have contributed completes block after block, and a collective that lacks a
//! contribution stands still.

use std::fmt;

use tributary_proto::contract::host::{CollectiveError, HostStats};
use tributary_proto::contract::ids::{Rank, ServerId};
use tributary_proto::contract::time::{Span, Time};

use crate::rendezvous::{Departed, ServerAddr, SwitchRanks};

/// If there is no progress for this time after a member has left, its contribution is missing.
const STANDSTILL: Span = Span::from_millis(1_000);
/// The same time for a member that was lost. It is shorter, because no other member can still send what is missing and
/// people wait.
const STANDSTILL_OF_LOST: Span = Span::from_millis(300);
/// All members hear the news within this time. A member that gives up sooner may look like the culprit to the others.
const SPREAD: Span = Span::from_millis(100);

/// The control plane's news that the job cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Members, switches or servers are gone.
    Gone(Departed),
    /// The switch does not know the job, or does not answer; the sentence says which.
    NoSwitch(String),
    /// A tree of the job is broken: collectives under way can never complete, whatever still moves over other trees.
    /// The sentence says why, and what to do.
    Broken(String),
}

impl News {
    /// The ranks that are gone.
    pub fn ranks(&self) -> Vec<Rank> {
        match self {
            News::Gone(gone) => gone.members.iter().map(|gone| Rank(gone.rank)).collect(),
            News::NoSwitch(_) | News::Broken(_) => Vec::new(),
        }
    }

    /// The servers that are gone.
    pub fn servers(&self) -> Vec<ServerId> {
        match self {
            News::Gone(gone) => gone.servers.iter().map(|place| ServerId(place.server)).collect(),
            News::NoSwitch(_) | News::Broken(_) => Vec::new(),
        }
    }

    fn is_orderly(&self) -> bool {
        let no_place = |gone: &Departed| gone.switches.is_empty() && gone.servers.is_empty();
        matches!(self, News::Gone(gone) if no_place(gone) && gone.members.iter().all(|gone| gone.left))
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Departed { members, switches, servers } = match self {
            News::Gone(gone) => gone,
            News::NoSwitch(sentence) | News::Broken(sentence) => return f.write_str(sentence),
        };
        let mut parts: Vec<String> = servers.iter().map(server_is_gone).collect();
        parts.extend(switches.iter().map(switch_is_gone));
        let with_switch = |rank: &u16| switches.iter().any(|place| place.ranks.contains(rank));
        let of = |left| members.iter().filter(move |gone| gone.left == left).map(|gone| gone.rank);
        let lost: Vec<u16> = of(false).filter(|rank| !with_switch(rank)).collect();
        match lost[..] {
            [] => {}
            [_] => parts.push(format!("{} is gone: its process ended or its host was cut off", list(&lost))),
            _ => parts.push(format!("{} are gone: their processes ended or their hosts were cut off", list(&lost))),
        }
        let left: Vec<u16> = of(true).collect();
        if !left.is_empty() {
            let have = if left.len() == 1 { "has" } else { "have" };
            parts.push(format!("{} {have} left the job", list(&left)));
        }
        f.write_str(&parts.join("; "))
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

/// The news, and the time since which there was no progress.
#[derive(Default)]
pub struct Outlook {
    news: Option<(Time, News)>,
    blocks: u64,
    progress: Time,
    verdict: Option<News>,
}

impl Outlook {
    /// The control plane has news; `None` withdraws them.
    pub fn hear(&mut self, now: Time, news: Option<News>) {
        self.news = news.map(|news| (now, news));
    }

    /// Notes that a new collective is under way.
    pub fn progressed(&mut self, now: Time) {
        self.progress = now;
    }

    /// Notes whether blocks have completed since the last call.
    pub fn look(&mut self, now: Time, stats: &HostStats) {
        let blocks = stats.blocks_in_network + stats.blocks_at_hosts;
        if blocks != self.blocks {
            (self.blocks, self.progress) = (blocks, now);
        }
    }

    /// When collectives under way are given up if there is no progress until then.
    pub fn hopeless_at(&self) -> Option<Time> {
        let (heard, news) = self.news.as_ref()?;
        if let News::Broken(_) = news {
            return Some(*heard + SPREAD);
        }
        let (standstill, patience) = match news {
            // Members that left in good order may have sent results that are still on their way.
            _ if news.is_orderly() => (STANDSTILL, STANDSTILL),
            News::Gone(_) => (STANDSTILL_OF_LOST, SPREAD),
            // Packets may still pass although calls fail.
            News::NoSwitch(_) | News::Broken(_) => (STANDSTILL, SPREAD),
        };
        Some((self.progress + standstill).max(*heard + patience))
    }

    /// Notes that collectives under way are given up because of the news.
    pub fn give_up(&mut self) {
        self.verdict = self.news.as_ref().map(|(_, news)| news.clone());
    }

    /// True if collectives were given up.
    pub fn has_given_up(&self) -> bool {
        self.verdict.is_some()
    }

    /// The news that explain this error: if this worker gave up, or a peer did.
    pub fn behind(&self, error: &CollectiveError) -> Option<&News> {
        match error {
            CollectiveError::Aborted => self.verdict.as_ref(),
            CollectiveError::PeerSilent { .. } | CollectiveError::ServerSilent { .. } => {
                self.verdict.as_ref().or(self.news.as_ref().map(|(_, news)| news))
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

    fn gone(rank: u16, left: bool) -> News {
        News::Gone(Departed { members: vec![Gone { rank, left }], ..Departed::default() })
    }

    #[test]
    fn a_loss_ends_what_stands_still_and_nothing_that_moves() {
        let mut outlook = Outlook::default();
        outlook.progressed(millis(5_000));
        assert_eq!(outlook.hopeless_at(), None);
        outlook.hear(millis(7_000), Some(gone(2, false)));
        assert_eq!(outlook.hopeless_at(), Some(millis(7_100)), "it has stood still for long enough already");
        outlook.look(millis(7_500), &HostStats { blocks_in_network: 1, ..HostStats::default() });
        assert_eq!(outlook.hopeless_at(), Some(millis(7_800)), "the lost rank has contributed to some");
        outlook.hear(millis(7_600), None);
        assert_eq!(outlook.hopeless_at(), None, "the rank was heard again");
    }

    /// A death at 5 s is known when a closed connection and its silence prove it. Nothing moves after what was under way then.
    #[test]
    fn a_rank_or_a_server_that_was_killed_ends_what_stands_still_within_two_seconds() {
        let servers = vec![ServerAddr { server: 0, addr: "10.0.0.7:4242".parse().unwrap() }];
        let server = News::Gone(Departed { servers, ..Departed::default() });
        for news in [gone(2, false), server] {
            let mut outlook = Outlook::default();
            let known = millis(5_000) + tributary_control::Timers::default().closed_silence();
            for (last_progress, latest) in [(5_000, 6_100), (5_999, 6_299)] {
                outlook.progressed(millis(last_progress));
                outlook.hear(known, Some(news.clone()));
                assert_eq!(outlook.hopeless_at(), Some(millis(latest)), "{news}");
            }
        }
    }

    #[test]
    fn a_broken_tree_ends_what_still_moves_over_others() {
        let mut outlook = Outlook::default();
        outlook.hear(millis(7_000), Some(News::Broken("tree 1 ran through spine1, which is dead".into())));
        outlook.look(millis(7_090), &HostStats { blocks_in_network: 1, ..HostStats::default() });
        assert_eq!(outlook.hopeless_at(), Some(millis(7_100)));
    }

    #[test]
    fn who_leaves_in_good_order_may_have_left_results_behind() {
        let mut outlook = Outlook::default();
        outlook.hear(millis(7_000), Some(gone(2, true)));
        assert_eq!(outlook.hopeless_at(), Some(millis(8_000)));
    }

    #[test]
    fn news_are_a_sentence_that_names_who() {
        assert_eq!(gone(3, true).to_string(), "rank 3 has left the job");
        let members = [(0, true), (1, false), (4, true), (5, false)].map(|(rank, left)| Gone { rank, left }).to_vec();
        let both = News::Gone(Departed { members: members.clone(), ..Departed::default() });
        assert_eq!(
            both.to_string(),
            "ranks 1, 5 are gone: their processes ended or their hosts were cut off; ranks 0, 4 have left the job"
        );
        assert_eq!(gone(1, false).to_string(), "rank 1 is gone: its process ended or its host was cut off");
        let place = |addr: &str, ranks: &[u16]| SwitchRanks { addr: addr.parse().unwrap(), ranks: ranks.to_vec() };
        let with_switch =
            News::Gone(Departed { members, switches: vec![place("10.0.0.2:7", &[1])], ..Departed::default() });
        assert_eq!(
            with_switch.to_string(),
            "the switch 10.0.0.2:7 is gone, and rank 1 with it: its process ended or it was cut off; rank 5 is gone: its \
             process ended or its host was cut off; ranks 0, 4 have left the job"
        );
        let above = News::Gone(Departed { switches: vec![place("10.0.0.9:7", &[])], ..Departed::default() });
        let sentence = "the switch above, 10.0.0.9:7, is gone: its process ended or it was cut off";
        assert_eq!((above.to_string().as_str(), above.is_orderly()), (sentence, false));
        let servers = vec![ServerAddr { server: 1, addr: "10.0.0.7:4242".parse().unwrap() }];
        let server =
            News::Gone(Departed { servers, members: vec![Gone { rank: 3, left: true }], ..Departed::default() });
        let sentence = "server 1 (10.0.0.7:4242) is gone: its process ended or it was cut off; rank 3 has left the job";
        assert_eq!((server.to_string().as_str(), server.is_orderly()), (sentence, false));
        assert_eq!(server.servers(), [ServerId(1)]);
    }
}
