//! A point that is run on another machine, and the data that is sent there.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::plan::SweepPoint;
use super::run_point;
use super::store::Finished;
use crate::config::ConfigError;

/// One point, with the version of the program that planned it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkOrder {
    version: String,
    values: Vec<String>,
    config: String,
}

/// Why an order is refused.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// Another version might give other results.
    #[error("the sweep was planned by tributary {planned}, and this machine has {VERSION}; install the same on both")]
    Version {
        /// The version that planned it.
        planned: String,
    },
    /// The file is not an experiment.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl WorkOrder {
    /// The order for a point.
    pub fn new(point: &SweepPoint) -> WorkOrder {
        WorkOrder { version: VERSION.to_string(), values: point.values.clone(), config: point.text.clone() }
    }

    /// Runs the point.
    pub fn run(self) -> Result<Finished, OrderError> {
        if self.version != VERSION {
            return Err(OrderError::Version { planned: self.version });
        }
        let point = SweepPoint::read(self.values, self.config)?;
        Ok(run_point(&point, &AtomicBool::new(false)).expect("it cannot be stopped"))
    }
}
