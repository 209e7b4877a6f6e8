//! The progress of each member of a job in its collectives. Members report it to their switch with each keepalive, and a
//! shard keeps the last report. Switches in levels forward it to their parents, so that each switch of a job knows the
//! progress of all ranks below it.
//!
//! ```text
//!  16          24          32                                    40     42         44        48
//!  | submitted | completed | the oldest that is not complete     | rank | reserved | age, us |
//! ```

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{self, COMMON_LEN, Common, SPEC_LEN, kind};

/// Bytes after the common header.
pub const BODY_LEN: usize = 32;
/// The shortest time between two reports of a rank that count. Ranks report twice a second.
const INTERVAL: Span = Span::from_millis(100);
/// The most collectives that a report may name: more than a rank could begin in a century.
const MOST: u64 = 1 << 50;
/// Bytes of the packet.
pub const LEN: usize = COMMON_LEN + BODY_LEN;

/// The progress of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The rank.
    pub rank: Rank,
    /// Collectives that the rank has begun since it joined.
    pub submitted: u64,
    /// The number of these collectives that are over. They are the first ones.
    pub completed: u64,
    /// The oldest collective that is not over, and how long the rank has been in it.
    pub oldest: Option<(Spec, Span)>,
}

impl Progress {
    /// The packet.
    pub fn packet(&self, common: Common) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        Common { kind: kind::PROGRESS, ..common }.emit(&mut bytes);
        bytes[COMMON_LEN..].copy_from_slice(&self.body());
        bytes
    }

    /// Reads a packet whose common header was checked.
    pub fn parse(packet: &[u8]) -> Result<Progress, DropReason> {
        Progress::parse_body(packet.get(COMMON_LEN..).unwrap_or_default())
    }

    /// The packet after the common header.
    pub fn body(&self) -> [u8; BODY_LEN] {
        let (spec, age) = self.oldest.unwrap_or((Spec::NOTHING, Span::ZERO));
        let age_us = u32::try_from(age.as_nanos() / 1_000).unwrap_or(u32::MAX);
        let mut body = [0; BODY_LEN];
        body[0..8].copy_from_slice(&self.submitted.to_be_bytes());
        body[8..16].copy_from_slice(&self.completed.to_be_bytes());
        wire::put_spec(&mut body[16..], &spec);
        body[24..26].copy_from_slice(&self.rank.0.to_be_bytes());
        body[28..32].copy_from_slice(&age_us.to_be_bytes());
        body
    }

    /// Reads what [`Progress::body`] wrote.
    pub fn parse_body(body: &[u8]) -> Result<Progress, DropReason> {
        let body: &[u8; BODY_LEN] = body.try_into().map_err(|_| DropReason::BadLength)?;
        let count = |at| u64::from(wire::u32(body, at)) << 32 | u64::from(wire::u32(body, at + 4));
        let (submitted, completed) = (count(0), count(8));
        if submitted > MOST {
            return Err(DropReason::BadField);
        }
        let spec: &[u8; SPEC_LEN] = body[16..][..SPEC_LEN].try_into().expect("it is as long");
        let age = Span::from_micros(wire::u32(body, 28).into());
        let oldest = match submitted.checked_sub(completed).ok_or(DropReason::BadField)? {
            0 => None,
            _ => Some((wire::parse_spec(spec)?, age)),
        };
        Ok(Progress { rank: Rank(wire::u16(body, 24)), submitted, completed, oldest })
    }
}

/// The last report of each rank of a job, and its time.
#[derive(Clone, Debug, Default)]
pub struct RankProgress(Vec<Option<(Time, Progress)>>);

impl RankProgress {
    /// The state before any of this number of ranks has reported.
    pub fn new(world_size: u16) -> RankProgress {
        RankProgress(vec![None; world_size.into()])
    }

    /// Records the report of a rank.
    pub fn record(&mut self, now: Time, progress: Progress) -> Result<(), DropReason> {
        let of_rank = self.0.get_mut(progress.rank.index()).ok_or(DropReason::BadField)?;
        if of_rank.is_some_and(|(last, _)| now.since(last) < INTERVAL) {
            return Err(DropReason::TooOften);
        }
        *of_rank = Some((now, progress));
        Ok(())
    }

    /// The reports and their times, by ascending rank.
    pub fn iter(&self) -> impl Iterator<Item = &(Time, Progress)> + Clone {
        self.0.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tributary_numeric::{DType, ReduceOp};
    use tributary_proto::contract::ids::{JobId, JobKey};

    use super::*;

    const COMMON: Common = Common { protocol: 3, kind: 0, job: JobId(5), key: JobKey(6) };

    #[test]
    fn what_is_written_is_read() {
        let spec = Spec::reduce(1_000, DType::BF16, ReduceOp::Max, Rank(2));
        let slow = Span::from_micros(1_500_000);
        let cases = [(7, 7, None), (8, 7, Some((spec, slow))), (1 << 40, 2, Some((spec, slow)))];
        for (submitted, completed, oldest) in cases {
            let progress = Progress { rank: Rank(9), submitted, completed, oldest };
            let bytes = progress.packet(COMMON);
            assert_eq!(Common::parse(&bytes), Ok(Common { kind: kind::PROGRESS, ..COMMON }));
            assert_eq!(Progress::parse(&bytes), Ok(progress));
        }
    }

    #[test]
    fn a_rank_that_reports_all_the_time_counts_ten_times_a_second_and_never_more_than_is_possible() {
        let mut ranks = RankProgress::new(1);
        let report = |submitted| Progress { rank: Rank(0), submitted, completed: submitted, oldest: None };
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let counted = (0..1_000).filter(|&millis| ranks.record(at(millis), report(millis)).is_ok()).count();
        assert_eq!(counted, 10);
        let impossible = report(u64::MAX).packet(COMMON);
        assert_eq!(Progress::parse(&impossible), Err(DropReason::BadField));
    }

    proptest! {
        #[test]
        fn no_packet_reports_for_a_rank_that_does_not_exist(bytes in proptest::collection::vec(any::<u8>(), 0..2 * LEN)) {
            let mut of_ranks = RankProgress::new(3);
            let parsed = Progress::parse(&bytes).and_then(|progress| of_ranks.record(Time::ZERO, progress));
            prop_assert_eq!(parsed.is_ok(), of_ranks.iter().count() == 1);
            prop_assert!(of_ranks.iter().all(|(_, progress)| progress.rank.0 < 3));
        }
    }
}
