//! Canary as a value of the registry, and its options.

use super::{CanaryHost, CanarySwitch, wire};
use crate::contract::numbers::Numbers;
use crate::contract::options::{Kind, OptionSet, OptionSpec, Options, TO_THE_LETTER};
use crate::contract::protocol::{Placement, Protocol, Refusal, Shared};
use crate::contract::time::Span;

/// Canary (De Sensi et al., 2023): dynamic trees through all switches of a fabric.
pub static PROTOCOL: Protocol = Protocol {
    code: 3,
    name: "canary",
    about: "the switches of a fabric sum, wherever a block's packets meet",
    header_len: wire::HEADER_LEN,
    placement: Placement::EveryHop,
    rooted_is_unicast: true,
    options: JOB,
    numbers: |_| Numbers::Fixed,
    check: |spec, _| match tributary_numeric::has_fixed_point(spec.dtype, spec.op) {
        true => Ok(()),
        false => {
            let (why, instead) = (
                ": its trees have no order, and its descriptors add 32-bit integers",
                "sum or average f32, f16, bf16 or i32, or take a protocol with planned trees",
            );
            Err(Refusal { protocol: "canary", spec: *spec, why, instead })
        }
    },
    host: |values, config| Box::new(CanaryHost::new(values, config)),
    shared: Some(Shared {
        machine: |values, config| Box::new(CanarySwitch::new(values, config)),
        memory: CanarySwitch::bytes_of,
        options: SWITCH,
        longest_wait: |options| options.time("timeout"),
        server: None,
        fallback_note: |_, _, _| {
            "at the ranks that lead them: their sums were lost on the way again and again".to_owned()
        },
        capacity: |options| options.count("descriptors") / options.count("partitions"),
    }),
    describe: wire::describe,
    ..Protocol::BASE
};

const TIME: Kind = Kind::Time { least: Span::ZERO, most: Span::from_millis(60_000) };

/// What the members of a job choose.
pub const JOB: OptionSet = OptionSet::new(
    "canary",
    &[
        OptionSpec {
            name: "reissues",
            kind: Kind::Count { least: 0, most: 200 },
            default: "3",
            help: "a block that failed so often is summed by hosts",
        },
        OptionSpec {
            name: "fails",
            kind: Kind::Choice(&["lost", TO_THE_LETTER]),
            default: "lost",
            help: "an issue fails once requests show that something was lost, or, as in the paper, at the first request",
        },
    ],
);

/// What the operator of the switches chooses. The simulator's defaults are those of Canary's prototype (§5.1), with the
/// timeout of §3.2.2.
pub const SWITCH: OptionSet = OptionSet {
    simulated: &[("descriptors", "32768"), ("timeout", "1 us"), ("adaptive", "false"), ("lease", "20 ms")],
    together,
    ..OptionSet::new(
        "canary",
        &[
            OptionSpec {
                name: "descriptors",
                kind: Kind::Count { least: 1, most: 1 << 20 },
                default: "4096",
                help: "entries of a switch's array, for the blocks of all jobs",
            },
            OptionSpec {
                name: "partitions",
                kind: Kind::Count { least: 1, most: u16::MAX as u64 },
                default: "1",
                help: "equal parts of the array; job j uses part j mod partitions, and with 1 every job uses all",
            },
            OptionSpec {
                name: "timeout",
                kind: TIME,
                default: "1 ms",
                help: "how long a partial sum waits for more contributions, at most",
            },
            OptionSpec {
                name: "adaptive",
                kind: Kind::Flag,
                default: "true",
                help: "wait only as long as contributions lie apart, as the switch has seen; false: always `timeout`",
            },
            OptionSpec {
                name: "least_timeout",
                kind: TIME,
                default: "100 us",
                help: "how long a partial sum waits at least, if the wait is adaptive",
            },
            OptionSpec {
                name: "collect_stragglers",
                kind: Kind::Flag,
                default: "true",
                help: "stragglers that closely follow another are summed; false: each goes on by itself, as in the paper",
            },
            OptionSpec {
                name: "lease",
                kind: Kind::Time { least: Span::from_micros(1), most: Span::from_millis(3_600_000) },
                default: "1 s",
                help: "a descriptor that nobody has needed for so long is free again: its sum was lost",
            },
        ],
    )
};

fn together(options: &Options) -> Result<(), String> {
    let (descriptors, partitions) = (options.count("descriptors"), options.count("partitions"));
    if partitions > descriptors {
        return Err(format!("{descriptors} descriptors in {partitions} partitions: each partition needs at least one"));
    }
    let (least, most) = (options.time("least_timeout"), options.time("timeout"));
    if options.flag("adaptive") && least > most {
        return Err(format!(
            "least_timeout = {} is above timeout = {}, which is the most that a switch waits: lower it, or set adaptive to \
             false",
            least.to_text(),
            most.to_text()
        ));
    }
    Ok(())
}

/// How long a partial sum waits for more contributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushTimeout {
    /// Always the same time.
    Fixed(Span),
    /// As long as contributions of one block lie apart, as the switch has measured it; within bounds.
    Adaptive {
        /// The shortest wait.
        least: Span,
        /// The longest wait.
        most: Span,
    },
}

impl FlushTimeout {
    /// The timeout that the operator has chosen.
    pub fn of(options: &Options) -> FlushTimeout {
        let (least, most) = (options.time("least_timeout"), options.time("timeout"));
        match options.flag("adaptive") {
            true => FlushTimeout::Adaptive { least, most },
            false => FlushTimeout::Fixed(most),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sentence(given: &[(&str, &str)]) -> String {
        let given: BTreeMap<_, _> = given.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        SWITCH.read(&given).unwrap_err().to_string()
    }

    #[test]
    fn values_that_do_not_go_together_are_refused_with_a_sentence() {
        assert_eq!(
            sentence(&[("descriptors", "2"), ("partitions", "3")]),
            "canary: 2 descriptors in 3 partitions: each partition needs at least one"
        );
        assert_eq!(
            sentence(&[("timeout", "50 us")]),
            "canary: least_timeout = 100 us is above timeout = 50 us, which is the most that a switch waits: lower it, or set \
             adaptive to false"
        );
        assert_eq!(
            sentence(&[("lease", "0 s")]),
            "canary's option lease is 0 s: it may be a time from 1 us to 3600 s, as in \"1.5 us\""
        );
    }
}
