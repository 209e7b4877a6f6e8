//! What can go wrong with a collective, in sentences for people.

use crate::handover::Stage;

/// Why a collective failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// Ranks brought different collectives.
    #[error("{0}")]
    Mismatch(String),
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
    pub(crate) fn died(ranks: u64) -> LocalError {
        let missing = numbers(ranks);
        let sentence = match missing[..] {
            [_] => format!("{} is gone: its process ended", named(&missing)),
            _ => format!("{} are gone: their processes ended", named(&missing)),
        };
        LocalError::Lost { sentence, missing }
    }

    /// The error of ranks that have left the group.
    pub(crate) fn left(ranks: u64) -> LocalError {
        let missing = numbers(ranks);
        let have = if missing.len() == 1 { "has" } else { "have" };
        LocalError::Lost { sentence: format!("{} {have} left the job", named(&missing)), missing }
    }

    /// The error of ranks that did not come to a stage in time; `begun` if they have come to the collective.
    pub(crate) fn timed_out(ranks: u64, begun: bool) -> LocalError {
        let missing = numbers(ranks);
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
            LocalError::Mismatch(sentence) => LocalError::Mismatch(later(&sentence)),
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

/// The numbers of the bits.
pub(crate) fn numbers(ranks: u64) -> Vec<u16> {
    (0..64).filter(|rank| ranks >> rank & 1 == 1).collect()
}

/// "rank 1", or "ranks 1, 2".
pub(crate) fn named(ranks: &[u16]) -> String {
    let numbers: Vec<String> = ranks.iter().map(u16::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, numbers.join(", "))
}
