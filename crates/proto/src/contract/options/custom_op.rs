//! The option that names a job's custom operators. The hashes are text, as for any option; the modules travel beside
//! the options.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Kind, OptionSet, OptionSpec, Options, Value};
use crate::contract::custom_op::{CustomOp, CustomOps};

/// The options of a job with custom operators, as name and text.
pub type CustomOpJob = fn(&[Arc<dyn CustomOp>]) -> Vec<(&'static str, String)>;

impl OptionSpec {
    /// The option, for protocols that combine with custom operators.
    pub const CUSTOM_OPS: OptionSpec = OptionSpec {
        name: "operators",
        kind: Kind::CustomOps,
        default: "",
        help: "the job's custom operators, as the SHA-256 of their modules",
    };
}

impl OptionSet {
    /// The options of a job with these operators, by name: those that were chosen, and those that such a job needs
    /// besides. `None` if the protocol has no such jobs.
    pub fn with_custom_ops(
        &self,
        given: &BTreeMap<String, String>,
        operators: &[Arc<dyn CustomOp>],
    ) -> Option<BTreeMap<String, String>> {
        let needed = (self.custom_ops?)(operators).into_iter().map(|(name, text)| (name.to_owned(), text));
        Some(needed.chain(given.clone()).collect())
    }
}

impl Options {
    /// The job's custom operators; empty if its protocol has no such option.
    pub fn operators(&self) -> CustomOps {
        self.0
            .values()
            .find_map(|value| if let Value::CustomOps(operators) = value { Some(operators.clone()) } else { None })
            .unwrap_or_default()
    }

    /// The same options, with the modules among these that belong to the job's custom operators.
    #[must_use]
    pub fn provided(mut self, modules: &[Arc<dyn CustomOp>]) -> Options {
        for value in self.0.values_mut() {
            if let Value::CustomOps(operators) = value {
                *operators = operators.provided(modules);
            }
        }
        self
    }
}
