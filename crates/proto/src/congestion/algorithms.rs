//! The algorithms as values, by name: which there are, what each needs from the network, and the option that chooses one.

use std::fmt;

use super::{Controller, Settings, aimd, cubic, dcqcn, dctcp, fixed, hpcc, measured, progress_aware, swift, timely};
use crate::contract::options::{Kind, OptionSpec, Options};

/// Every algorithm that jobs can choose by name.
pub const ALGORITHMS: &[Algorithm] = &[
    aimd::ALGORITHM,
    cubic::ALGORITHM,
    dctcp::ALGORITHM,
    fixed::ALGORITHM,
    measured::ALGORITHM,
    progress_aware::ALGORITHM,
    swift::ALGORITHM,
];

/// Those that set a rate. Senders of jobs have none, so that only flows of the simulator can choose them.
pub const OF_RATES: &[Algorithm] = &[dcqcn::ALGORITHM, hpcc::ALGORITHM, timely::ALGORITHM];

/// The names of [`ALGORITHMS`], for the values of an option.
pub const NAMES: &[&str] = &names!(ALGORITHMS);

/// The names of algorithms, whatever they are algorithms of, as a constant.
macro_rules! names {
    ($algorithms:expr) => {{
        let mut names = [""; $algorithms.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = $algorithms[index].name;
            index += 1;
        }
        names
    }};
}
pub(crate) use names;

/// What an algorithm needs from the network so that it can see congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// Nothing: losses and delays are seen at the ends.
    EndToEnd,
    /// Queues that mark packets.
    Marks,
    /// Switches that write [`HopRecord`](super::HopRecord)s.
    Telemetry,
}

/// An algorithm as a value.
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// Its name in options and files.
    pub name: &'static str,
    /// What it needs from the network.
    pub feedback: Feedback,
    /// Makes the controller of one sender.
    pub make: fn(&Settings) -> Box<dyn Controller>,
}

impl Algorithm {
    /// The algorithm with this name.
    pub fn named(name: &str) -> Option<&'static Algorithm> {
        ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
    }

    /// The algorithm with this name, of those that the simulator's flows can have.
    pub fn of_flows(name: &str) -> Option<&'static Algorithm> {
        Algorithm::named(name).or_else(|| OF_RATES.iter().find(|algorithm| algorithm.name == name))
    }

    /// The algorithm that a job's members have chosen with [`option`].
    pub fn chosen(options: &Options) -> &'static Algorithm {
        Algorithm::named(options.choice(OPTION)).expect("the option's values are the algorithms' names")
    }
}

impl PartialEq for Algorithm {
    fn eq(&self, other: &Algorithm) -> bool {
        self.name == other.name
    }
}

impl Eq for Algorithm {}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The name of the option that chooses the algorithm.
pub const OPTION: &str = "congestion_control";

/// The option that chooses the algorithm.
pub const fn option(default: &'static str) -> OptionSpec {
    OptionSpec {
        name: OPTION,
        kind: Kind::Choice(NAMES),
        default,
        help: "the algorithm that decides how many packets are under way",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_found_by_its_name() {
        for algorithm in ALGORITHMS {
            assert_eq!(Algorithm::named(algorithm.name), Some(algorithm));
        }
        for algorithm in OF_RATES {
            assert_eq!(
                (Algorithm::named(algorithm.name), Algorithm::of_flows(algorithm.name)),
                (None, Some(algorithm))
            );
        }
        assert_eq!(Algorithm::named("hope"), None);
        assert_eq!(NAMES.len(), ALGORITHMS.len());
    }
}
