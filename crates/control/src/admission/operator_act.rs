//! What operators do while a switch runs, and the sentences by which others learn of it.

use crate::names::{Client, JobName};

/// An act of an operator because of which something is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperatorAct {
    /// No new job may begin.
    #[error("an operator has cordoned this switch: no new job begins here; use another switch, or ask when it is back")]
    Cordoned,
    /// The client may not join.
    #[error("an operator has banned {client} from this switch: ask why")]
    Banned {
        /// The client.
        client: Client,
    },
    /// The job is over.
    #[error("operator '{operator}' has ended job '{job}'")]
    Ended {
        /// The job.
        job: JobName,
        /// The operator's name.
        operator: String,
    },
    /// The member to evict is not there.
    #[error("job '{job}' has no rank {rank} at this switch: in levels, ask the switch to which the rank has come")]
    NoMember {
        /// The job.
        job: JobName,
        /// The rank.
        rank: u16,
    },
}
