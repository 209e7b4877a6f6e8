//! What went wrong, as one sentence and an exit code.

use std::fmt;
use std::io;

use serde_json::json;

use crate::output;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The command was called wrongly: exit code 2.
    Usage(String),
    /// It could not be done: exit code 1.
    Failed(String),
    /// As `Failed`, where stdout holds the JSON object already.
    Told(String),
    /// Whoever read our output went away: nothing to say, and nobody to say it to.
    ReaderGone,
}

impl Failure {
    /// A failure with this sentence.
    pub fn new(sentence: impl fmt::Display) -> Failure {
        Failure::Failed(sentence.to_string())
    }

    /// A wrong call, with this sentence.
    pub fn usage(sentence: impl fmt::Display) -> Failure {
        Failure::Usage(sentence.to_string())
    }

    /// What is wrong, and what to do about it.
    pub fn sentence(&self) -> &str {
        match self {
            Failure::Usage(sentence) | Failure::Failed(sentence) | Failure::Told(sentence) => sentence,
            Failure::ReaderGone => "nobody reads the output any more",
        }
    }

    /// Tells the person (and, with `--json`, the script) and returns the exit code.
    pub fn report(&self, json: bool) -> i32 {
        let code = match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) | Failure::Told(_) => 1,
            Failure::ReaderGone => return 0,
        };
        let sentence = self.sentence();
        if json && !matches!(self, Failure::Told(_)) {
            // The sentence goes to stderr whatever becomes of stdout.
            let _ = output::json(&json!({ "error": sentence }));
        }
        output::complain(&format!("tributary: error: {sentence}"));
        code
    }
}

/// Every typed error of ours is a sentence already.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let any: &(dyn std::error::Error + 'static) = &error;
        match any.downcast_ref::<io::Error>() {
            Some(io) if io.kind() == io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Failed(error.to_string()),
        }
    }
}
