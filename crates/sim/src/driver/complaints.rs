//! What goes wrong in a job: results that are not right, and collectives that fail.

use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::operator::Operator;
use tributary_proto::contract::time::Time;
use tributary_proto::tensors::Verification;

use super::failed::Failure;
use super::jobs::Job;
use super::own::Data;

/// What must not happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// A sum that is not every contribution exactly once, or not what the job's own operator makes of them.
    Sum(Verification),
    /// Results that may lack ranks are others than those of this rank.
    Differs(Rank),
    /// A collective that failed.
    Failed(CollectiveError),
    /// The job's own operator has failed in a switch, and the job is over.
    Over,
}

/// Where and when it happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    /// When.
    pub time: Time,
    /// Whose.
    pub rank: Rank,
    /// Which collective.
    pub iteration: u32,
    /// What.
    pub what: Wrong,
}

impl Complaint {
    /// Whose it is, when, and what.
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
