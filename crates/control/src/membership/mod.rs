//! Who belongs to a job: the ranks that are still coming ([`pending_job`]), the members of a running job
//! ([`running_job`]), and how their loss is noticed ([`watch`], [`losses`]) and reported ([`departures`], [`job_events`]).

pub(crate) mod departures;
pub(crate) mod job_events;
pub(crate) mod losses;
pub(crate) mod pending_job;
pub(crate) mod running_job;
pub(crate) mod watch;

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberState {
    /// The member has joined and, if the job runs, packets came from it lately.
    Present,
    /// The member has left in good order.
    Left,
    /// The member fell silent.
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
