//! What a job's members may choose.

use crate::contract::options::{Kind, OptionSet, OptionSpec, Options};

const CONGESTION_CONTROL: &str = "congestion_control";
const ROUND_ROBIN: &str = "round_robin";

/// The options of the protocol.
pub const SET: OptionSet = OptionSet::new(
    "panama",
    &[
        OptionSpec {
            name: CONGESTION_CONTROL,
            kind: Kind::Choice(&["on", "off"]),
            default: "on",
            help: "windows follow marks, or are constant: the room in accelerators",
        },
        OptionSpec {
            name: ROUND_ROBIN,
            kind: Kind::Choice(&["open", "strict"]),
            default: "open",
            help: "the next tree whose window is open sends, or trees send strictly in turn",
        },
    ],
);

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choices {
    /// Windows follow marks (figure 5).
    pub congestion_control: bool,
    /// A packet leaves only after all before it have left, on other trees too (§4.1).
    pub strict: bool,
}

impl Choices {
    /// Reads a job's options.
    pub fn of(options: &Options) -> Choices {
        Choices {
            congestion_control: options.choice(CONGESTION_CONTROL) == "on",
            strict: options.choice(ROUND_ROBIN) == "strict",
        }
    }
}
