//! What can go wrong with a collective, in sentences for people.

use crate::collective::Description;
use crate::handover::Stage;

/// Why a collective failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// Ranks brought different collectives.
    #[error("{sentence}")]
    Mismatch {
        /// Who brought what.
        sentence: String,
        /// The ranks and what they brought, as far as this rank knows.
        brought: Vec<(u16, Description)>,
    },
    /// The timeout has passed.
    #[error("{sentence}")]
    TimedOut {
        /// Who did not come, or did not go on.
        sentence: String,
        /// These ranks.
        missing: Vec<u16>,
    },
    /// Ranks are gone.
    #[error("{sentence}")]
    Lost {
        /// Whether they have left or died.
        sentence: String,
        /// These ranks.
        missing: Vec<u16>,
    },
    /// Another rank has said why it gives up, in its caller's words.
    #[error("rank {rank} gives up")]
    Reported {
        /// That rank.
        rank: u16,
        /// What it said.
        message: Vec<u8>,
    },
    /// This rank gave up.
    #[error("the group was aborted")]
    Aborted,
    /// The group was closed.
    #[error("this group was closed; make a new one")]
    Closed,
    /// The operator has no meaning for the type.
    #[error("there is no {0}: band, bor and bxor are for integers")]
    Refused(String),
    /// A root that is not a rank, or lengths that do not fit together.
    #[error("{0}")]
    Invalid(String),
    /// A panic in the thread that worked: a bug of this program.
    #[error("a collective has stopped after a fault of its own; make a new group to go on")]
    Fault,
}

impl LocalError {
    /// The error of ranks that have died.
    pub(crate) fn died(missing: Vec<u16>) -> LocalError {
        let sentence = match missing[..] {
            [_] => format!("{} is gone: its process ended", named(&missing)),
            _ => format!("{} are gone: their processes ended", named(&missing)),
        };
        LocalError::Lost { sentence, missing }
    }

    /// The error of ranks that have left the group.
    pub(crate) fn left(missing: Vec<u16>) -> LocalError {
        let have = if missing.len() == 1 { "has" } else { "have" };
        LocalError::Lost { sentence: format!("{} {have} left the job", named(&missing)), missing }
    }

    /// The error of ranks that did not come to a stage in time; `begun` if they have come to the collective.
    pub(crate) fn timed_out(missing: Vec<u16>, begun: bool) -> LocalError {
        let have = if missing.len() == 1 { "has" } else { "have" };
        let what = if begun { "stopped in the middle" } else { "not come" };
        LocalError::TimedOut { sentence: format!("{} {have} {what}", named(&missing)), missing }
    }

    /// The error of a rank that comes after another one's timeout.
    pub(crate) fn given_up(rank: u16, this: u16) -> LocalError {
        let sentence = format!("rank {rank} has given up, since this rank had not come in time");
        LocalError::TimedOut { sentence, missing: vec![this] }
    }

    /// The error of everything that comes after this one.
    pub(crate) fn of_later(&self) -> LocalError {
        let later = |sentence: &str| format!("an earlier collective failed ({sentence}); make a new group to go on");
        match self.clone() {
            LocalError::Mismatch { sentence, brought } => LocalError::Mismatch { sentence: later(&sentence), brought },
            LocalError::TimedOut { sentence, missing } => LocalError::TimedOut { sentence: later(&sentence), missing },
            LocalError::Aborted => LocalError::Closed,
            other => other,
        }
    }
}

/// Whether ranks that lack in a stage have come to the collective at all.
pub(crate) fn have_begun(stage: Stage) -> bool {
    stage != Stage::CopyIn
}

/// The names of the ranks that have a bit.
pub(crate) fn names_of(ranks: u64, names: &[u16]) -> Vec<u16> {
    names.iter().enumerate().filter(|(index, _)| ranks >> index & 1 == 1).map(|(_, &name)| name).collect()
}

/// "rank 1", or "ranks 1, 2".
pub(crate) fn named(ranks: &[u16]) -> String {
    let numbers: Vec<String> = ranks.iter().map(u16::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, numbers.join(", "))
}
