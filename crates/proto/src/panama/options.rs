//! What a job's members may choose.

use tributary_numeric::ReduceOp;

use crate::congestion::rank_synchronous::{self, RankSynchronousAlgorithm};
use crate::contract::config::Below;
use crate::contract::options::{Kind, OptionSet, OptionSpec, Options};
use crate::contract::tensor::{Primitive, Spec};

const CONGESTION_CONTROL: &str = "congestion_control";
const ROUND_ROBIN: &str = "round_robin";
const PARTIAL: &str = "partial";

/// The options of the protocol.
pub const SET: OptionSet = OptionSet {
    quorum: Some(|options, world_size| Some(Quorum::of(options)?.least(world_size))),
    ..OptionSet::new("panama", SPECS)
};

const SPECS: &[OptionSpec] = &[
    OptionSpec {
        name: CONGESTION_CONTROL,
        kind: Kind::Choice(rank_synchronous::NAMES),
        default: "on",
        help: "windows follow marks, or are constant: the room in accelerators; or, as in the paper, figure 5 to the letter",
    },
    OptionSpec {
        name: ROUND_ROBIN,
        kind: Kind::Choice(&["open", "strict"]),
        default: "open",
        help: "the next tree whose window is open sends, or trees send strictly in turn",
    },
    OptionSpec {
        name: PARTIAL,
        kind: Kind::Choice(&["off", "15/16", "14/16", "3/4", "1/2"]),
        default: "off",
        help: "averages of floats wait for this many of the ranks and leave out the latest, or for all",
    },
];

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choices {
    /// What decides how many packets of a tree are without a result (figure 5).
    pub congestion_control: &'static RankSynchronousAlgorithm,
    /// A packet leaves only after all before it have left, on other trees too (§4.1).
    pub strict: bool,
    /// The part of the ranks that averages wait for, if not all (§7).
    pub quorum: Option<Quorum>,
}

impl Choices {
    /// Reads a job's options.
    pub fn of(options: &Options) -> Choices {
        Choices {
            congestion_control: RankSynchronousAlgorithm::named(options.choice(CONGESTION_CONTROL))
                .expect("the option's values are the algorithms' names"),
            strict: options.choice(ROUND_ROBIN) == "strict",
            quorum: Quorum::of(options),
        }
    }
}

/// The part of a job's ranks that an average waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    share: u32,
    of: u32,
}

impl Quorum {
    /// The part that a job's members chose; `None` if sums wait for all ranks.
    pub fn of(options: &Options) -> Option<Quorum> {
        let (share, of) = options.choice(PARTIAL).split_once('/')?;
        Some(Quorum { share: share.parse().ok()?, of: of.parse().ok()? })
    }

    /// How many ranks an average waits for, rounded to the nearest whole number, halves upwards. §7 calls 14 and 15 of
    /// 16 "0.88" and "0.94".
    pub fn least(self, world_size: u16) -> u16 {
        ((2 * self.share * u32::from(world_size) + self.of) / (2 * self.of)) as u16
    }

    /// How many ranks an average may lack.
    pub fn budget(self, world_size: u16) -> u16 {
        world_size - self.least(world_size)
    }
}

// Averages that do not wait for all ranks (§7, PANAMA-0.88 and -0.94): which collectives may lack ranks, and how many
// of its workers each switch may leave out of a VID.
//
// A fixed number for each switch cannot be right: a rack of eight would leave out no rank or one of eight, and a root
// that insists on 15 of 16 never gets enough from racks that passed seven of eight. So each VID has as many *leaves*
// as the job may lack ranks; ranks hold the leaves in turn, evenly spread, and each VID has other holders. A switch
// may leave out as many of its own workers as hold a leave, and may choose any of them. So the shares of all switches
// add up to the job's, however ranks are spread over racks.

/// True if a sum over some of the ranks is a valid answer: an average over the ranks that contributed, of an allreduce.
pub fn may_lack_ranks(spec: &Spec) -> bool {
    let Spec { elements, dtype, op, primitive } = *spec;
    elements > 0 && op == ReduceOp::Avg && dtype.is_float() && primitive == Primitive::Allreduce
}

/// How many of a switch's workers may be left out.
#[derive(Clone, Debug, Hash)]
pub struct Budget {
    world_size: u32,
    /// How many ranks a VID may lack in the whole job.
    all: u32,
    /// The rank of each child that is a worker; `None` for a child that is a switch: sums wait for switches.
    workers: Vec<Option<u16>>,
}

impl Budget {
    /// The budget of a switch with these children, in a job of `world_size` ranks.
    pub fn new(quorum: Quorum, world_size: u16, below: &[Below]) -> Budget {
        let rank = |below: &Below| match below {
            Below::Worker(rank) => Some(rank.0),
            Below::Switch(_) => None,
        };
        Budget {
            world_size: world_size.into(),
            all: quorum.budget(world_size).into(),
            workers: below.iter().map(rank).collect(),
        }
    }

    /// True if the child is a worker.
    pub fn is_worker(&self, child: usize) -> bool {
        self.workers[child].is_some()
    }

    /// True if a VID may lack this many of the switch's children, none of which is a switch.
    pub fn covers(&self, missing: usize, vid: u32) -> bool {
        missing == 0 || missing <= self.all as usize && missing <= self.of(vid)
    }

    /// How many workers of this switch a VID may lack.
    fn of(&self, vid: u32) -> usize {
        self.workers.iter().flatten().filter(|&&rank| self.has_leave(rank, vid)).count()
    }

    /// True if a rank holds a leave of a VID. Of any `world_size` consecutive ranks or VIDs, `all` have one, spread
    /// evenly (Bresenham's line).
    fn has_leave(&self, rank: u16, vid: u32) -> bool {
        let position = (u64::from(rank) + u64::from(vid)) % u64::from(self.world_size);
        position * u64::from(self.all) % u64::from(self.world_size) < u64::from(self.all)
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.workers.capacity() * size_of::<Option<u16>>()
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::DType;

    use super::*;
    use crate::contract::ids::Rank;

    fn quorum(text: &str) -> Quorum {
        let given = [(PARTIAL.to_owned(), text.to_owned())].into();
        Quorum::of(&SET.read(&given).unwrap()).unwrap()
    }

    /// §7: 0.88 and 0.94 are 14 and 15 of 16. Rounding up would make them 15 and 16, so that 0.94 left out no rank.
    #[test]
    fn the_number_to_wait_for_is_the_nearest() {
        for (text, world_size, least) in [
            ("14/16", 16, 14),
            ("15/16", 16, 15),
            ("14/16", 96, 84),
            ("15/16", 96, 90),
            ("15/16", 17, 16),
            ("15/16", 24, 23),
            ("14/16", 5, 4),
            ("14/16", 4, 4),
            ("15/16", 8, 8),
            ("15/16", 9, 8),
            ("1/2", 2, 1),
            ("1/2", 3, 2),
            ("3/4", 4, 3),
            ("3/4", 1, 1),
            ("1/2", 1, 1),
        ] {
            assert_eq!(quorum(text).least(world_size), least, "{text} of {world_size}");
            assert_eq!(quorum(text).budget(world_size), world_size - least);
        }
    }

    #[test]
    fn nobody_is_left_out_unless_somebody_chose_so() {
        assert_eq!(Choices::of(&SET.defaults()).quorum, None);
    }

    #[test]
    fn the_shares_of_all_racks_add_up_to_what_the_job_may_lack() {
        for (text, world_size, rack) in
            [("14/16", 16, 8), ("15/16", 16, 8), ("15/16", 96, 7), ("14/16", 33, 5), ("3/4", 10, 3), ("1/2", 3, 1)]
        {
            let ranks: Vec<Below> = (0..world_size).map(|rank| Below::Worker(Rank(rank))).collect();
            let racks: Vec<Budget> =
                ranks.chunks(rack).map(|below| Budget::new(quorum(text), world_size, below)).collect();
            for vid in [0, 1, 2, 15, 16, 1_000, u32::MAX] {
                let shares: Vec<usize> = racks.iter().map(|rack| rack.of(vid)).collect();
                let all = usize::from(quorum(text).budget(world_size));
                assert_eq!(shares.iter().sum::<usize>(), all, "{text} of {world_size} at {vid}: {shares:?}");
                let even = all as f64 * rack as f64 / f64::from(world_size);
                assert!(shares.iter().all(|&share| (share as f64) < even + 1.0), "{text} of {world_size}: {shares:?}");
            }
        }
    }

    #[test]
    fn every_rank_has_a_leave_as_often_as_any_other() {
        let workers: Vec<Below> = (0..16).map(|rank| Below::Worker(Rank(rank))).collect();
        let budget = Budget::new(quorum("14/16"), 16, &workers);
        for rank in 0..16 {
            assert_eq!((0..16).filter(|&vid| budget.has_leave(rank, vid)).count(), 2, "rank {rank}");
        }
        assert!(budget.covers(2, 5) && !budget.covers(3, 5));
    }

    #[test]
    fn a_switch_below_is_not_a_worker_that_can_be_left_out() {
        let below = [Below::Switch((0..8).map(Rank).collect()), Below::Switch((8..16).map(Rank).collect())];
        let budget = Budget::new(quorum("1/2"), 16, &below);
        assert!((0..32).all(|vid| budget.covers(0, vid) && !budget.covers(1, vid)));
    }

    #[test]
    fn only_an_average_of_floats_on_all_ranks_may_lack_ranks() {
        let spec = Spec::allreduce(8, DType::BF16, ReduceOp::Avg);
        assert!(may_lack_ranks(&spec));
        for other in [
            Spec { op: ReduceOp::Sum, ..spec },
            Spec { op: ReduceOp::Max, ..spec },
            Spec { dtype: DType::I32, ..spec },
            Spec { primitive: Primitive::Reduce(Rank(0)), ..spec },
            Spec { elements: 0, ..spec },
            Spec::broadcast(8, Rank(0)),
        ] {
            assert!(!may_lack_ranks(&other), "{other}");
        }
    }
}
