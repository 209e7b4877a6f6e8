//! News of a switch's jobs for an operator: a job is formed, has lost members, has ended.

use std::sync::Arc;

use crate::plan::Plan;
use crate::watch::Departed;

/// Something that has happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tiding {
    /// All ranks have come, and the job is installed.
    Formed(Arc<Plan>),
    /// The job was there before this control plane.
    Adopted(Arc<Plan>),
    /// Members, switches or servers have fallen silent without a word.
    Lost {
        /// The job.
        plan: Arc<Plan>,
        /// The members, switches and servers that are lost now.
        lost: Departed,
    },
    /// Members that were lost are heard again.
    Back {
        /// The job.
        plan: Arc<Plan>,
        /// The members' ranks, ascending.
        ranks: Vec<u16>,
    },
    /// The job holds no memory any more.
    Ended {
        /// The job.
        plan: Arc<Plan>,
        /// How the job ended.
        end: End,
    },
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// All members have said that they have finished.
    Left,
    /// Some member was lost.
    Lost,
    /// The job's name stands for a newer job.
    Superseded,
    /// The switch was stopped.
    Stopped,
    /// The job never began: some shard did not take it.
    NotInstalled,
}

impl End {
    /// Every end, the best first.
    pub const ALL: [End; 5] = [End::Left, End::Lost, End::Superseded, End::Stopped, End::NotInstalled];

    /// The name in metrics and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            End::Left => "left",
            End::Lost => "lost",
            End::Superseded => "superseded",
            End::Stopped => "stopped",
            End::NotInstalled => "not_installed",
        }
    }
}
