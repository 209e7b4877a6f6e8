//! The collective that a job's ranks are in, and which ranks are not in it yet. Both are computed from what each rank
//! reports.

use std::fmt;

use serde::{Deserialize, Serialize};
use tributary_control::Ranks;
use tributary_proto::contract::tensor::{Primitive, Spec};
use tributary_proto::contract::time::Span;

use crate::progress::Progress;

/// A rank reports twice a second. If a rank has not mentioned a collective for this time, two reports are missing.
const OVERDUE: Span = Span::from_millis(1_100);

/// If a rank has not reported for this time, it has left, has stopped, or is dead.
const SILENT: Span = Span::from_millis(2_600);

/// A collective that is not over on some rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationStatus {
    /// The collective's number within the job, counted from 1.
    pub number: u64,
    /// `allreduce`, `reduce` or `broadcast`.
    pub name: String,
    /// The operator; none for a broadcast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// Type of the elements; a broadcast moves words of 32 bits.
    pub dtype: String,
    /// The number of elements.
    pub elements: u32,
    /// The rank that gets the result, or whose data all ranks get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u16>,
    /// Seconds that some rank had been in the collective when it last reports so: half a second ago at most, if that rank
    /// is alive.
    pub for_s: f64,
    /// Ranks that have begun it, ascending.
    pub begun: Vec<u16>,
    /// Ranks that have not begun it, ascending. Ranks that reports nothing to this switch are in neither list.
    pub not_begun: Vec<u16>,
}

/// `allreduce 42, sum of 6553600 f32 elements`
impl fmt::Display for OperationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OperationStatus { number, name, op, dtype, elements, root, .. } = self;
        write!(f, "{name} {number}, ")?;
        match (op, root) {
            (Some(_), None) if *elements == 0 => write!(f, "a barrier"),
            (Some(op), None) => write!(f, "{op} of {elements} {dtype} elements"),
            (Some(op), Some(root)) => write!(f, "{op} of {elements} {dtype} elements for rank {root}"),
            (None, root) => write!(f, "of {elements} words of 32 bits from rank {}", root.unwrap_or_default()),
        }
    }
}

impl OperationStatus {
    /// `train: rank 2 has not begun allreduce 42, sum of 100 f32 elements; ranks 0, 1 have, 3.2 s ago`; `None` if all
    /// ranks have begun it, as far as is known.
    pub fn who_lacks(&self, job: &str) -> Option<String> {
        let have = |ranks: &[u16]| if ranks.len() == 1 { "has" } else { "have" };
        let (begun, lacking) = (&self.begun[..], &self.not_begun[..]);
        (!lacking.is_empty()).then(|| {
            let (who, others) = (format!("{} {}", Ranks(lacking), have(lacking)), Ranks(begun));
            format!("{job}: {who} not begun {self}; {others} {}, {:.1} s ago", have(begun), self.for_s)
        })
    }
}

/// How many collectives are over on the rank that is furthest ahead, and the collective that ranks are in. Each report
/// of a rank comes with its age.
pub(crate) fn current(reports: impl Iterator<Item = (Span, Progress)> + Clone) -> (u64, Option<OperationStatus>) {
    let over = reports.clone().map(|(_, progress)| progress.completed).max().unwrap_or(0);
    // If a rank has left or is gone, nobody knows which collective it is in.
    let alive = reports.clone().filter(|&(ago, _)| ago <= SILENT);
    let behind =
        alive.clone().filter(|(_, progress)| progress.oldest.is_some()).map(|(_, progress)| progress.completed);
    // If no rank has begun the next collective, some rank may still wait for the result of one that is over elsewhere.
    let is_next = behind.clone().any(|completed| completed == over);
    let Some(before) = (if is_next { Some(over) } else { behind.min() }) else { return (over, None) };
    let number = before + 1;
    let in_it = alive.filter(|(_, progress)| progress.completed == before);
    let in_it = in_it.filter_map(|(ago, progress)| progress.oldest.map(|(spec, age)| (spec, age, ago)));
    let Some((spec, age, _)) = in_it.clone().max_by_key(|&(_, age, _)| age) else { return (over, None) };
    // The time since the first of them began.
    let lasts = in_it.map(|(_, age, ago)| Span(age.0 + ago.0)).max().unwrap_or(age);
    let has_begun = |progress: &Progress| progress.submitted >= number;
    // A report from before the others began does not count.
    let is_news = move |ago: Span| ago <= lasts || lasts >= OVERDUE;
    let ranks = |chosen: &dyn Fn(Span, &Progress) -> bool| {
        let chosen = reports.clone().filter(|(ago, progress)| chosen(*ago, progress));
        let mut ranks: Vec<u16> = chosen.map(|(_, progress)| progress.rank.0).collect();
        ranks.sort_unstable();
        ranks
    };
    let operation = OperationStatus {
        number,
        name: name(&spec).to_owned(),
        op: (!matches!(spec.primitive, Primitive::Broadcast(_))).then(|| spec.op.name().to_owned()),
        dtype: spec.dtype.name().to_owned(),
        elements: spec.elements,
        root: match spec.primitive {
            Primitive::Allreduce => None,
            Primitive::Reduce(root) | Primitive::Broadcast(root) => Some(root.0),
        },
        for_s: age.as_secs_f64(),
        begun: ranks(&|_, progress| has_begun(progress)),
        not_begun: ranks(&|ago, progress| !has_begun(progress) && is_news(ago)),
    };
    (over, Some(operation))
}

fn name(spec: &Spec) -> &'static str {
    match spec.primitive {
        Primitive::Allreduce => "allreduce",
        Primitive::Reduce(_) => "reduce",
        Primitive::Broadcast(_) => "broadcast",
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};
    use tributary_proto::contract::ids::Rank;

    use super::*;

    /// The result for these reports. Each has its age in milliseconds, the number of collectives that the rank has
    /// begun, the number that are over, and the milliseconds for which the rank has been in the oldest one that is not
    /// over.
    fn current_of(reports: &[(u64, u64, u64, u64)]) -> (u64, Option<OperationStatus>) {
        let spec = Spec::allreduce(100, DType::F32, ReduceOp::Sum);
        let of = |(rank, &(ago, submitted, completed, age)): (usize, &(u64, u64, u64, u64))| {
            let oldest = (submitted > completed).then(|| (spec, Span::from_millis(age)));
            (Span::from_millis(ago), Progress { rank: Rank(rank as u16), submitted, completed, oldest })
        };
        current(reports.iter().enumerate().map(of))
    }

    fn ranks(reports: &[(u64, u64, u64, u64)]) -> (u64, Vec<u16>, Vec<u16>) {
        let operation = current_of(reports).1.expect("somebody is in one");
        (operation.number, operation.begun, operation.not_begun)
    }

    #[test]
    fn who_has_not_begun_what_others_wait_in_is_named() {
        let (over, operation) = current_of(&[(100, 42, 41, 2_900), (300, 41, 41, 0), (200, 42, 41, 2_000)]);
        let operation = operation.expect("two ranks are in one");
        assert_eq!((over, operation.number, operation.for_s), (41, 42, 2.9));
        assert_eq!((&operation.begun[..], &operation.not_begun[..]), (&[0, 2][..], &[1][..]));
        let sentence = "train: rank 1 has not begun allreduce 42, sum of 100 f32 elements; ranks 0, 2 have, 2.9 s ago";
        assert_eq!(operation.who_lacks("train").as_deref(), Some(sentence));
        assert_eq!(current_of(&[]), (0, None));
        assert_eq!(current_of(&[(0, 7, 7, 0), (400, 7, 7, 0)]), (7, None));
    }

    #[test]
    fn what_a_rank_said_before_the_others_began_does_not_name_it() {
        // Rank 1 reported 400 ms ago, and rank 0 began 50 ms ago.
        assert_eq!(ranks(&[(10, 9, 8, 40), (400, 8, 8, 0)]), (9, vec![0], vec![]));
        // By this time rank 1 should have reported again.
        assert_eq!(ranks(&[(10, 9, 8, 1_200), (1_300, 8, 8, 0)]), (9, vec![0], vec![1]));
        // Fast ranks begin many collectives between two reports.
        assert_eq!(ranks(&[(10, 1_400, 1_399, 1), (450, 1_001, 1_000, 1)]), (1_400, vec![0], vec![]));
    }

    #[test]
    fn who_has_left_in_the_middle_of_its_words_is_in_nothing() {
        assert_eq!(current_of(&[(10, 7, 7, 0), (5_000, 7, 6, 3)]), (7, None));
        // The others wait for a rank that has stopped.
        assert_eq!(ranks(&[(10, 8, 7, 4_000), (5_000, 7, 7, 0)]), (8, vec![0], vec![1]));
    }

    #[test]
    fn who_waits_for_a_result_that_others_have_is_in_it() {
        assert_eq!(ranks(&[(10, 5, 5, 0), (10, 5, 4, 700)]), (5, vec![0, 1], vec![]));
        // If one rank is ahead, it waits in a later collective, and the result names that one.
        assert_eq!(ranks(&[(10, 6, 5, 100), (10, 5, 4, 700)]), (6, vec![0], vec![1]));
    }
}
