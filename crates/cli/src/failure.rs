//! Failures: one sentence and an exit code.

use std::fmt;
use std::io;

use serde_json::json;

use crate::output;
use crate::sink::priority_of_failure;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command was called wrongly: exit code 2.
    Usage(String),
    /// The command failed: exit code 1.
    Failed(String),
    /// Like `Failed`, when stdout has the JSON object already.
    Reported(String),
    /// The reader of the output went away, so nothing is reported.
    ReaderGone,
}

impl Failure {
    /// A failure with this sentence.
    pub fn new(sentence: impl fmt::Display) -> Failure {
        Failure::Failed(output::one_line(&sentence.to_string()))
    }

    /// A wrong call, with this sentence.
    pub fn usage(sentence: impl fmt::Display) -> Failure {
        Failure::Usage(output::one_line(&sentence.to_string()))
    }

    /// The sentence: the error, and what to do about it.
    pub fn sentence(&self) -> &str {
        match self {
            Failure::Usage(sentence) | Failure::Failed(sentence) | Failure::Reported(sentence) => sentence,
            Failure::ReaderGone => "nobody reads the output any more",
        }
    }

    /// Prints it for people (and, with `--json`, for scripts), and returns the exit code.
    pub fn report(&self, json: bool) -> i32 {
        let code = match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) | Failure::Reported(_) => 1,
            Failure::ReaderGone => return 0,
        };
        let sentence = self.sentence();
        if json && !matches!(self, Failure::Reported(_)) {
            // The sentence goes to stderr, even if stdout fails.
            let _ = output::json(&json!({ "error": sentence }));
        }
        output::complain(&format!("{}tributary: error: {sentence}", priority_of_failure()));
        code
    }
}

/// Every typed error of this project is a sentence already.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let any: &(dyn std::error::Error + 'static) = &error;
        match any.downcast_ref::<io::Error>() {
            Some(io) if io.kind() == io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::new(error),
        }
    }
}
