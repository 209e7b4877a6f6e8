//! The bodies of requests. Each is read against its own limit, in bounded time and memory, however it is cut into
//! chunks.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use tributary_proto::contract::ids::JobKey;

use crate::api::error::ApiError;
use crate::api::{from_hex, modules};
use crate::http::connection_limits::ConnectionPermit;

/// The largest body of most requests. A join has some 400 bytes.
pub(crate) const MAX_BODY: usize = 8 * 1024;
/// Time that a client has to send its request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A short body of JSON.
pub(crate) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    from_json(&read_bytes(body, MAX_BODY).await?)
}

/// A body of JSON that may be long. Each client may send a few of them at a time.
pub(crate) async fn read_long<T: DeserializeOwned>(
    permit: &ConnectionPermit,
    body: Body,
    most: usize,
) -> Result<T, ApiError> {
    let declared = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let Some(_permit) = permit.body(declared.unwrap_or(most).min(most)) else {
        let error = "this switch is receiving as many long requests as it can: try again in a while";
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_much_at_once", error.into()));
    };
    from_json(&read_bytes(body, most).await?)
}

/// Reads the body of a join. It has some 400 bytes, or more if it brings modules.
pub(crate) async fn read_join<T: DeserializeOwned>(permit: &ConnectionPermit, body: Body) -> Result<T, ApiError> {
    match body.size_hint().exact() {
        Some(bytes) if bytes > MAX_BODY as u64 => read_long(permit, body, MAX_BODY + modules::MOST_BYTES).await,
        _ => read(body).await,
    }
}

/// A body of at most `most` bytes.
pub(crate) async fn read_bytes(body: Body, most: usize) -> Result<Vec<u8>, ApiError> {
    match tokio::time::timeout(BODY_TIMEOUT, collect(body, most)).await {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => {
            let error = format!("the request's body did not come whole, or has more than {most} bytes");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "bad_body", error))
        }
        Err(_) => {
            let error = format!("the request's body did not come within {} s", BODY_TIMEOUT.as_secs());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "slow_request", error))
        }
    }
}

/// Copies each chunk and drops it, because even a chunk of one byte keeps a whole buffer of the connection alive.
async fn collect(mut body: Body, most: usize) -> Option<Vec<u8>> {
    if body.size_hint().lower() > most as u64 {
        return None;
    }
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(chunk) = frame.ok()?.into_data() else { continue };
        if bytes.len() + chunk.len() > most {
            return None;
        }
        bytes.extend_from_slice(&chunk);
    }
    Some(bytes)
}

/// Reads JSON. The error has a sentence.
pub(crate) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::bad_request(format!("the request's body is wrong: {error}")))
}

/// Reads a job's key.
pub(crate) fn parse_key(key: &str) -> Result<JobKey, ApiError> {
    from_hex(key).map(JobKey).ok_or_else(|| ApiError::bad_request("key is not of 16 hexadecimal digits".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_has_its_own_limit() {
        assert_eq!(read_bytes(Body::from(vec![7; 100]), 100).await, Ok(vec![7; 100]));
        assert!(read_bytes(Body::from(vec![7; 101]), 100).await.is_err());
        assert_eq!(read_bytes(Body::empty(), 0).await, Ok(Vec::new()));
    }
}
