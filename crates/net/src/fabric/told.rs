//! What the seat tells a switch about jobs, in the form for the switch's thread.

use tributary_proto::contract::ids::JobId;

use super::job::FabricJob;

/// The seat's message about jobs.
#[derive(Debug, Default)]
pub struct Told {
    /// Jobs that stay installed.
    pub keep: Vec<JobId>,
    /// Jobs to install. All others are removed.
    pub install: Vec<FabricJob>,
    /// The slots over all trees that jobs have now, for jobs whose machines can be resized.
    pub shares: Vec<(JobId, u16)>,
    /// The jobs that can never go on, with the reason.
    pub broken: Vec<(JobId, String)>,
}
