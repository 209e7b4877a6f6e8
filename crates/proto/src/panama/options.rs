//! What a job's members may choose.

use crate::congestion::rank_synchronous::{self, RankSynchronousAlgorithm};
use crate::contract::options::{Kind, OptionSet, OptionSpec, Options};

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
        help: "windows follow marks, or are constant: the room in accelerators",
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
