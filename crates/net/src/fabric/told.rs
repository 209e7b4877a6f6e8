//! What the seat tells a switch of jobs, as the switch's thread takes it.

use tributary_proto::contract::ids::JobId;

use super::job::FabricJob;

/// What the seat says of jobs.
#[derive(Debug, Default)]
pub struct Told {
    /// Those that stay where they are installed.
    pub keep: Vec<JobId>,
    /// Those to install. All others are removed.
    pub install: Vec<FabricJob>,
    /// The slots over all trees that some have now.
    pub shares: Vec<(JobId, u16)>,
    /// Those that can never go on, and why.
    pub broken: Vec<(JobId, String)>,
}
