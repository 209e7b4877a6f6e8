//! Errors in a job: wrong results, and collectives that fail.

use tributary_proto::contract::custom_op::CustomOp;
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::time::Time;
use tributary_proto::tensors::Verification;

use super::failed::Failure;
use super::jobs::Job;
use super::own::Data;

/// The kind of an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// A sum that does not contain every contribution exactly once, or differs from the result of the job's own
    /// operator.
    Sum(Verification),
    /// A result that may lack ranks differs from this rank's result.
    Differs(Rank),
    /// A collective that failed.
    Failed(CollectiveError),
    /// The job's own operator has failed in a switch, so the job is over.
    Over,
}

/// An error with its time and place.
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    /// When.
    pub time: Time,
    /// The rank.
    pub rank: Rank,
    /// The number of the collective.
    pub iteration: u32,
    /// The error.
    pub what: Wrong,
}

impl Complaint {
    /// A sentence that names the rank, the time and the error.
    pub fn sentence(&self, job: &Job) -> String {
        let what = match &self.what {
            Wrong::Failed(error) => error.to_string(),
            Wrong::Over => job.failed.as_ref().map_or_else(String::new, |Failure { switch, why, .. }| {
                format!("{why}, at switch {switch}; the job is over")
            }),
            Wrong::Differs(other) => format!("wrong result: it is not that of rank {other}"),
            Wrong::Sum(sum) => {
                let (faulty, missing) = (sum.faulty.len(), sum.missing.len());
                match job.plan.own.as_ref().filter(|own| own.data == Data::Real) {
                    None => format!(
                        "wrong sum: {} elements are proven, {faulty} ranges are faulty, {missing} are missing",
                        sum.verified
                    ),
                    Some(own) => format!(
                        "wrong result: {} bytes are what {} makes of all ranks' elements at home, {faulty} ranges are \
                         not, {missing} are missing",
                        sum.verified,
                        own.operator.name()
                    ),
                }
            }
        };
        let at = self.time.as_secs_f64() * 1e6;
        let host = job.members.get(self.rank.index()).map_or(0, |host| host.0);
        format!("rank {} (host {host}) in collective {} at {at:.3} us: {what}", self.rank, self.iteration)
    }
}
