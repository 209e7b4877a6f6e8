//! The operators of a switch: which of them it serves. Each is compiled once, and all jobs that bring the same module share it.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, Weak};

use sha2::{Digest, Sha256};
use tributary_proto::contract::custom_op::{CustomOp, CustomOpHash};

use crate::error::OperatorError;
use crate::operator::UserOperator;
use crate::sandbox::Sandbox;

/// Which operators a switch serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Allowed {
    /// Any that passes the self-test.
    #[default]
    Any,
    /// CustomOps with these hashes.
    Listed(Vec<CustomOpHash>),
    /// None.
    None,
}

impl FromStr for Allowed {
    type Err = OperatorError;

    /// Parses `any`, `none`, or hashes with commas between them.
    fn from_str(text: &str) -> Result<Allowed, OperatorError> {
        let hash = |text: &str| CustomOpHash::from_hex(text.trim());
        match text {
            "any" => Ok(Allowed::Any),
            "none" => Ok(Allowed::None),
            _ => text.split(',').map(hash).collect::<Option<_>>().map(Allowed::Listed).ok_or_else(|| {
                let wrong = "it is any, none, or hashes of 64 hexadecimal digits with commas between them";
                OperatorError::NotAllowed(wrong.to_owned())
            }),
        }
    }
}

/// Compiled operators, each kept while it is in use.
#[derive(Debug, Default)]
pub struct Library {
    sandbox: Sandbox,
    allowed: Allowed,
    /// Locked while a module is compiled: one at a time.
    known: Mutex<BTreeMap<CustomOpHash, Weak<UserOperator>>>,
}

impl Library {
    /// A library of the operators that are allowed.
    pub fn new(allowed: Allowed) -> Library {
        Library { allowed, ..Library::default() }
    }

    /// The operator of a module. This may take a while: only the module's length limits compilation.
    pub fn operator(&self, module: &[u8]) -> Result<Arc<dyn CustomOp>, OperatorError> {
        let hash = CustomOpHash(Sha256::digest(module).into());
        self.admits(hash)?;
        // Poisoned only if the sandbox panicked, which leaves the map unchanged.
        let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(operator) = known.get(&hash).and_then(Weak::upgrade) {
            return Ok(operator);
        }
        let operator = Arc::new(self.sandbox.load(module)?);
        known.retain(|_, operator| operator.strong_count() > 0);
        known.insert(hash, Arc::downgrade(&operator));
        Ok(operator)
    }

    fn admits(&self, hash: CustomOpHash) -> Result<(), OperatorError> {
        match &self.allowed {
            Allowed::Any => Ok(()),
            Allowed::Listed(hashes) if hashes.contains(&hash) => Ok(()),
            Allowed::Listed(_) => Err(OperatorError::NotAllowed(format!(
                "this switch serves listed operators, and {hash} is not among them: ask its operator to add it to [operators]"
            ))),
            Allowed::None => Err(OperatorError::NotAllowed(
                "this switch serves no operators of jobs' own: ask its operator to allow them ([operators] allow)"
                    .to_owned(),
            )),
        }
    }

    /// How many operators are in use.
    pub fn in_use(&self) -> usize {
        let known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        known.values().filter(|operator| operator.strong_count() > 0).count()
    }
}
