//! What the seat tells a switch about jobs, in the form for the switch's thread.

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

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
    /// Protocols whose jobs share a machine that stays, whether such a job is there or not.
    pub shared: Vec<&'static Protocol>,
    /// Jobs that can never go on, and why.
    pub broken: Vec<(JobId, String)>,
}
