//! Errors in a job: wrong results, and collectives that fail.

use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::operator::Operator;
use tributary_proto::contract::time::Time;
use tributary_proto::tensors::Verification;

use super::custom_op::Data;
use super::failed::Failure;
use super::jobs::Job;

/// The kind of an error.
#[derive(Clone, Debug, PartialEq)]
pub enum JobErrorKind {
    /// A sum that does not contain every contribution exactly once, or differs from the result of the custom operator.
    WrongSum(Verification),
    /// A result that may lack ranks differs from this rank's result.
    ResultsDiffer(Rank),
    /// A collective that failed.
    CollectiveFailed(CollectiveError),
    /// The job's custom operator has failed in a switch, so the job is over.
    OperatorFailed,
}

/// An error of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct JobError {
    /// When.
    pub time: Time,
    /// The rank.
    pub rank: Rank,
    /// The number of the collective.
    pub iteration: u32,
    /// The error.
    pub kind: JobErrorKind,
}

impl JobError {
    /// A sentence that names the rank, the time and the error.
    pub fn sentence(&self, job: &Job) -> String {
        let what = match &self.kind {
            JobErrorKind::CollectiveFailed(error) => error.to_string(),
            JobErrorKind::OperatorFailed => {
                job.failed.as_ref().map_or_else(String::new, |Failure { switch, why, .. }| {
                    format!("{why}, at switch {switch}; the job is over")
                })
            }
            JobErrorKind::ResultsDiffer(other) => format!("wrong result: it is not that of rank {other}"),
            JobErrorKind::WrongSum(sum) => {
                let (faulty, missing) = (sum.faulty.len(), sum.missing.len());
                match job.plan.custom_op.as_ref().filter(|op| op.data == Data::Real) {
                    None => format!(
                        "wrong sum: {} elements are proven, {faulty} ranges are faulty, {missing} are missing",
                        sum.verified
                    ),
                    Some(op) => format!(
                        "wrong result: {} bytes are what {} makes of all ranks' elements at home, {faulty} ranges are \
                         not, {missing} are missing",
                        sum.verified,
                        op.operator.name()
                    ),
                }
            }
        };
        let at = self.time.as_secs_f64() * 1e6;
        let host = job.members.get(self.rank.index()).map_or(0, |host| host.0);
        format!("rank {} (host {host}) in collective {} at {at:.3} us: {what}", self.rank, self.iteration)
    }
}
