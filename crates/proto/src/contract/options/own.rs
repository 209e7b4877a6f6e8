//! Options of jobs with operators of their own. The hashes are text, as for any option; the modules travel beside the
//! options.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{OptionSet, Options, Value};
use crate::contract::operator::{Operator, Operators};

/// The options of a job with operators of its own, as name and text.
pub type OwnJob = fn(&[Arc<dyn Operator>]) -> Vec<(&'static str, String)>;

impl OptionSet {
    /// The options of a job with these operators, by name: those that were chosen, and those that such a job needs
    /// besides. `None` if the protocol has no such jobs.
    pub fn of_own(
        &self,
        given: &BTreeMap<String, String>,
        operators: &[Arc<dyn Operator>],
    ) -> Option<BTreeMap<String, String>> {
        let needed = (self.own?)(operators).into_iter().map(|(name, text)| (name.to_owned(), text));
        Some(needed.chain(given.clone()).collect())
    }
}

impl Options {
    /// The job's own operators; none if its protocol has no such option.
    pub fn operators(&self) -> Operators {
        self.0
            .values()
            .find_map(|value| if let Value::Operators(own) = value { Some(own.clone()) } else { None })
            .unwrap_or_default()
    }

    /// The same options, with those of these modules that belong to the job's own operators.
    #[must_use]
    pub fn provided(mut self, modules: &[Arc<dyn Operator>]) -> Options {
        for value in self.0.values_mut() {
            if let Value::Operators(own) = value {
                *own = own.provided(modules);
            }
        }
        self
    }
}
