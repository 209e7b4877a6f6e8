//! What a fabric adds to the control API: requests that a switch forwards to the controller, and the controller's own
//! requests to the other switches.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use tributary_operators::Library;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::JobId;

use super::Api;
use crate::api::error::ApiError;
use crate::api::{Done, GoneMembers, NO_CONTROLLER, STOPPING, WatchBody, call, modules};
use crate::fabric::api::{HOST_HEADER, InstalledReply, SECRET_HEADER, StopBody, SyncBody, SyncReply, json};
use crate::fabric::{FabricSwitch, STOP};
use crate::http::body::{self, MAX_BODY};
use crate::http::connection_limits::ConnectionPermit;
use crate::http::{ClosingGuard, Peer};
use crate::shard::Stopped;

/// Largest body of a watch: all ranks of a job may be gone, and the switches below which they were.
const MAX_WATCH_BODY: usize = 1_024 + 128 * JobConfig::MAX_WORLD_SIZE as usize;
/// A job of a thousand ranks takes 50 kB, and each of its trees as much again.
const MAX_SYNC_BODY: usize = 64 << 20;

/// A switch where no jobs are formed.
#[derive(Clone)]
struct Follower {
    switch: Arc<FabricSwitch>,
    library: Arc<Library>,
}

/// The routes at a switch where no jobs are formed. Requests of members and servers are forwarded to the controller, which
/// decides what is installed here.
pub fn follower(api: &Api, switch: &Arc<FabricSwitch>) -> Router<Api> {
    Router::new()
        .route("/jobs/{name}/join", post(forward))
        .route("/jobs/{name}/leave", post(forward))
        .route("/jobs/{name}/standing", post(forward))
        .route("/jobs/{name}/sums", post(forward))
        .route("/jobs/{name}/watch", post(watch))
        .route("/servers/watch", post(forward))
        .route("/servers/leave", post(forward))
        .route("/fabric/sync", post(sync))
        .route("/fabric/jobs", post(installed))
        .with_state(Follower { switch: Arc::clone(switch), library: api.plane.library() })
}

/// The host that a request is from: the one for which a switch forwards it, or its sender.
pub fn sender(switch: &FabricSwitch, headers: &HeaderMap, peer: Peer) -> Result<IpAddr, ApiError> {
    let Some(host) = headers.get(HOST_HEADER) else { return Ok(peer.from) };
    check_secret(switch, headers)?;
    let host = host.to_str().ok().and_then(|host| host.parse().ok());
    host.ok_or_else(|| ApiError::bad_request(format!("{HOST_HEADER} is not an address")))
}

fn check_secret(switch: &FabricSwitch, headers: &HeaderMap) -> Result<(), ApiError> {
    let secret = headers.get(SECRET_HEADER).map_or(&[][..], |secret| secret.as_bytes());
    let expected = switch.layout.secret.as_bytes();
    // Every byte is compared, so that the time does not show where the two differ.
    let differ = secret.iter().zip(expected).fold(0, |differ, (a, b)| differ | (a ^ b));
    if secret.len() == expected.len() && differ == 0 {
        return Ok(());
    }
    let error =
        "this is for switches of the fabric, and the secret is not this fabric's: is the same file on all of them?";
    Err(ApiError::new(StatusCode::FORBIDDEN, "wrong_secret", error.into()))
}

/// The routes of other switches, at the controller.
pub fn controller() -> Router<Api> {
    Router::new().route(STOP, post(stop))
}

/// Notes that a switch's operator stops it.
async fn stop(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Json<Done>, ApiError> {
    let Some(switch) = &api.fabric else { return Err(ApiError::bad_request("this switch is in no fabric".into())) };
    check_secret(switch, &headers)?;
    let StopBody { switch: name } = body::read(body).await?;
    let node = switch.layout.switches().find(|&node| switch.layout.name(node) == name);
    let node = node.ok_or_else(|| ApiError::bad_request("the fabric has no such switch".into()))?;
    if let Some(controller) = &switch.controller {
        controller.note_stop(node).await;
    }
    Ok(Json(Done {}))
}

/// Waits until this switch stops, for a rank whose own switch it is.
pub async fn stopping(switch: &FabricSwitch, headers: &HeaderMap) -> ApiError {
    if headers.contains_key(HOST_HEADER) {
        // The rank's own switch passes its watch on, and goes on.
        return std::future::pending().await;
    }
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, STOPPING, switch.stopping().await)
}

/// Answers who is gone, or, as soon as the job has failed, why. The controller may be dead, so every switch checks the trees
/// itself.
async fn watch(
    State(Follower { switch, .. }): State<Follower>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Response, ApiError> {
    let body: WatchBody = body::read_long(&permit, body, MAX_WATCH_BODY).await?;
    let (id, key, request) = (JobId(body.job_id), body::parse_key(&body.key)?, json(&body));
    tokio::select! {
        biased;
        sentence = switch.handle.broken(id, key) => Ok(Json(GoneMembers::failed(sentence)).into_response()),
        error = stopping(&switch, &headers) => Err(error),
        answer = forward_bytes(&switch, peer, (&headers, &guard), &uri, &request) => answer,
    }
}

async fn forward(
    State(Follower { switch, .. }): State<Follower>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    headers: HeaderMap,
    uri: Uri,
    bytes: Body,
) -> Result<Response, ApiError> {
    let request = body::read_bytes(bytes, MAX_BODY + modules::MOST_BYTES).await?;
    forward_bytes(&switch, peer, (&headers, &guard), &uri, &request).await
}

async fn forward_bytes(
    switch: &FabricSwitch,
    peer: Peer,
    (received, guard): (&HeaderMap, &ClosingGuard),
    uri: &Uri,
    request: &[u8],
) -> Result<Response, ApiError> {
    let (fabric, control, host) = (&switch.layout, switch.controller_addr(), peer.from.to_string());
    // The controller charges the job to the tenant whose token the worker shows.
    let token = received.get(header::AUTHORIZATION).and_then(|token| token.to_str().ok());
    let token = token.map(|token| (header::AUTHORIZATION.as_str(), token));
    let own = [(SECRET_HEADER, fabric.secret.as_str()), (HOST_HEADER, host.as_str())];
    let headers: Vec<(&str, &str)> = own.into_iter().chain(token).collect();
    // A worker that closes its connection drops this future. That closes our connection, and the controller withdraws the join.
    let is_watch = uri.path().ends_with("/watch");
    let connect = if is_watch { call::CONNECT } else { call::CONNECT_AMID_LOSS };
    let answered = async {
        let mut call = call::post(connect, control, uri.path(), request, &headers).await?;
        io::Result::Ok((call.answer().await?, call))
    };
    match answered.await {
        Ok((answer, connection)) => {
            // As long as the worker keeps the connection of a watch open, our connection to the controller stays open too.
            if is_watch {
                guard.keep(connection);
            }
            let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
            Ok((status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response())
        }
        Err(why) => {
            let error = switch.controller_stops().unwrap_or_else(|| format!(
                "switch {}, where this fabric's jobs are formed, cannot be asked at {control}: {why}; start it again",
                fabric.name(fabric.controller)
            ));
            Err(ApiError::new(StatusCode::BAD_GATEWAY, NO_CONTROLLER, error))
        }
    }
}

/// Answers a restarted controller that asks for the jobs that are installed here.
async fn installed(
    State(Follower { switch, .. }): State<Follower>,
    headers: HeaderMap,
) -> Result<Json<InstalledReply>, ApiError> {
    check_secret(&switch, &headers)?;
    Ok(Json(switch.installed().await.map_err(stopped)?))
}

/// Makes the jobs of this switch those of the controller.
async fn sync(
    State(Follower { switch, library }): State<Follower>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<SyncReply>, ApiError> {
    check_secret(&switch, &headers)?;
    let bytes = body::read_bytes(bytes, MAX_SYNC_BODY).await?;
    let body: SyncBody = body::from_json(&bytes)?;
    switch.note_controller_stops(body.stopping);
    // The controller's clients have waited for their turn there.
    let jobs = match body.has_modules() {
        false => body.jobs(&library)?,
        true => {
            let jobs = tokio::task::spawn_blocking(move || body.jobs(&library)).await;
            jobs.unwrap_or_else(|error| Err(ApiError::bad_request(format!("its jobs cannot be read: {error}"))))?
        }
    };
    Ok(Json(switch.sync(jobs).await.map_err(stopped)?))
}

fn stopped(error: Stopped) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "shard_stopped", error.to_string())
}
