//! Whether the parent switch is healthy, as it says itself. A leaf forms no jobs without it.

use std::time::Duration;

use super::ControlPlane;
use crate::api::{ErrorBody, call};

/// The interval between two questions to the parent switch.
const ASK_EVERY: Duration = Duration::from_millis(2_000);
/// The time in which the parent switch must answer.
const PATIENCE: Duration = Duration::from_millis(2_000);

impl ControlPlane {
    /// Why the parent switch is not healthy, if there is a parent.
    pub fn parent_failure(&self) -> Option<String> {
        self.parent_failure.lock().expect("no call panics while it holds this").clone()
    }

    /// Asks the parent switch regularly whether it takes jobs, and logs when that changes. Never ends.
    pub async fn watch_parent(&self) {
        let Some(parent) = self.parent() else { return std::future::pending().await };
        loop {
            let failure = match tokio::time::timeout(PATIENCE, self.ask_parent()).await {
                Ok(answer) => answer.err(),
                Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
            };
            let before = {
                let mut known = self.parent_failure.lock().expect("no call panics while it holds this");
                std::mem::replace(&mut *known, failure.clone())
            };
            match (before, failure) {
                (None, Some(why)) => tracing::warn!(%parent, why, "parent switch is down"),
                (Some(_), None) => tracing::info!(%parent, "parent switch is up"),
                _ => {}
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    async fn ask_parent(&self) -> Result<(), String> {
        let Some(parent) = &self.parent_client else { return Ok(()) };
        let answer = async { call::get(parent.parent(), "/readyz", &parent.headers()).await?.answer().await };
        let answer = answer.await.map_err(|error| error.to_string())?;
        match (answer.status, serde_json::from_slice(&answer.body)) {
            (200, _) => Ok(()),
            (_, Ok(ErrorBody { error, .. })) => Err(error),
            (status, Err(_)) => Err(format!("it answers with status {status}")),
        }
    }
}
