//! Who belongs to a job: the ranks that are still coming (`pending_job`), the members of a running job
//! (`running_job`), how their loss is noticed (`watch`, `losses`), and the events that operators see (`job_events`).

pub(crate) mod job_events;
mod lease;
pub(crate) mod losses;
pub(crate) mod pending_job;
pub(crate) mod running_job;
pub(crate) mod watch;

use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::time::Time;

use crate::levels::SwitchRanks;
use crate::servers::ServerAddr;

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberState {
    /// The member has joined and, if the job runs, packets came from it lately.
    Present,
    /// The member has left in good order.
    Left,
    /// The member fell silent, or has said that it can no longer contribute.
    Lost,
}

impl MemberState {
    /// The name in JSON, metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            MemberState::Present => "present",
            MemberState::Left => "left",
            MemberState::Lost => "lost",
        }
    }
}

/// A member that has left a job or is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gone {
    /// The member's rank.
    pub rank: u16,
    /// How many of the job's first collectives it had completed when it left in good order; `None` if it is lost.
    pub completed: Option<u64>,
}

impl Gone {
    /// The member has left in good order, and is not lost.
    pub fn has_left(&self) -> bool {
        self.completed.is_some()
    }
}

/// The members, switches and servers of a job that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Members, by ascending rank.
    pub members: Vec<Gone>,
    /// Switches that are lost, each with the ranks below it, which are gone with it. A switch without ranks is the parent.
    pub switches: Vec<SwitchRanks>,
    /// Servers, by ascending number.
    pub servers: Vec<ServerAddr>,
}

impl Departed {
    /// True if no member, switch or server is gone.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.switches.is_empty() && self.servers.is_empty()
    }

    pub(crate) fn extend(&mut self, other: &Departed) {
        self.members.extend(&other.members);
        self.switches.extend(other.switches.iter().cloned());
        self.servers.extend(&other.servers);
    }
}

/// A neighbouring switch. It learns what others have reported, and not what it has reported itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbour {
    Child(ChildId),
    Parent,
}

/// A switch of a fabric that cannot be reached, with the ranks that it connects.
pub(crate) struct Outage {
    pub switch: SwitchRanks,
    pub since: Time,
}
