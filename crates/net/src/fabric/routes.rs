//! The control API of a fabric switch: the controller answers requests as every switch does, and the others forward them to
//! it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use tributary_control::fabric::FabricLayout;
use tributary_control::{Client, JobName};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{ChildId, JobId};
use tributary_proto::protocols;

use super::api::{HOST_HEADER, InstalledReply, JobBody, JobReportBody, SECRET_HEADER, SyncBody, SyncReply};
use super::controller::Controller;
use super::handle::FabricHandle;
use super::job_table::JobSync;
use super::peers::MAX_SYNC_BODY;
use super::{endpoints, servers};
use crate::api::call;
use crate::api::error::ApiError;
use crate::api::modules;
use crate::api::{GoneMembers, JoinBody, JoinReply, NO_CONTROLLER, WatchBody};
use crate::http::body;
use crate::http::connection_limits::ConnectionPermit;
use crate::http::routes::{self, Api};
use crate::http::{ClosingGuard, Peer};
use crate::shard::Stopped;

/// Largest body of a watch: all ranks of a job may be gone, and the switches below which they were.
const MAX_WATCH_BODY: usize = 1_024 + 128 * JobConfig::MAX_WORLD_SIZE as usize;

/// The data that the handlers of a fabric switch work on.
#[derive(Clone)]
pub struct FabricState {
    pub api: Api,
    pub fabric: Arc<FabricLayout>,
    pub handle: Arc<FabricHandle>,
    /// At the controller: the planner of jobs.
    pub controller: Option<Controller>,
}

/// The routes at the controller, where jobs are formed.
pub fn controller(state: FabricState) -> Router {
    let own = Router::new()
        .route("/jobs/{name}/join", post(join))
        .route("/jobs/{name}/watch", post(watch))
        .route("/servers/watch", post(servers::serve))
        .with_state(state.clone());
    let same = Router::new()
        .route("/jobs/{name}/leave", post(routes::leave))
        .route("/jobs/{name}/standing", post(routes::standing))
        .route("/servers/leave", post(routes::retire))
        .with_state(state.api.clone());
    routes::with_fallbacks(routes::readable(state.api.clone()).merge(own).merge(same), state.api.plane)
}

/// The routes at every other switch. Requests are forwarded to the controller, which decides what is installed here.
pub fn follower(state: FabricState) -> Router {
    let own = Router::new()
        .route("/jobs/{name}/join", post(forward))
        .route("/jobs/{name}/leave", post(forward))
        .route("/jobs/{name}/standing", post(forward))
        .route("/jobs/{name}/watch", post(watch_at_follower))
        .route("/servers/watch", post(forward))
        .route("/servers/leave", post(forward))
        .route("/fabric/sync", post(sync))
        .route("/fabric/jobs", post(installed))
        .with_state(state.clone());
    routes::with_fallbacks(routes::readable(state.api.clone()).merge(own), state.api.plane)
}

/// The host that a request is from: the one for which a switch forwards it, or its sender.
pub(super) fn sender(state: &FabricState, headers: &HeaderMap, peer: Peer) -> Result<IpAddr, ApiError> {
    let Some(host) = headers.get(HOST_HEADER) else { return Ok(peer.from) };
    check_secret(state, headers)?;
    let host = host.to_str().ok().and_then(|host| host.parse().ok());
    host.ok_or_else(|| ApiError::bad_request(format!("{HOST_HEADER} is not an address")))
}

fn check_secret(state: &FabricState, headers: &HeaderMap) -> Result<(), ApiError> {
    let secret = headers.get(SECRET_HEADER).map_or(&[][..], |secret| secret.as_bytes());
    let expected = state.fabric.secret.as_bytes();
    // Every byte is compared, so that the time does not show where the two differ.
    let differ = secret.iter().zip(expected).fold(0, |differ, (a, b)| differ | (a ^ b));
    if secret.len() == expected.len() && differ == 0 {
        return Ok(());
    }
    let error =
        "this is for switches of the fabric, and the secret is not this fabric's: is the same file on all of them?";
    Err(ApiError::new(StatusCode::FORBIDDEN, "wrong_secret", error.into()))
}

async fn join(
    State(state): State<FabricState>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<JoinReply>, ApiError> {
    let name = JobName::new(&name)?;
    let from = sender(&state, &headers, peer)?;
    let body: JoinBody = body::read_join(&permit, bytes).await?;
    let library = state.api.plane.library();
    let has_modules = !body.modules.is_empty();
    let read = move || body.request(from, peer.asked_at, Client::at(from), &library);
    let mut request = body::compiling(has_modules, read).await?;
    state.fabric.fit(&mut request);
    let rank = request.rank;
    let plan = state.api.plane.join(&name, request).await?;
    // No rank can reach a server itself: each exchanges packets with its own switch only.
    state.api.plane.until_served(&plan).await;
    let mut reply = JoinReply::new(&plan, ChildId(rank), state.api.listen, vec![state.fabric.port]);
    // A job that could not be installed everywhere is gone already. Its members cannot use it.
    let planned = async { state.controller.as_ref()?.job(plan.config.job).await };
    if let Some(planned) = planned.await {
        reply.slots = planned.job.most_slots;
        reply.fabric = endpoints::member_reply(&state.fabric, &planned, rank);
    }
    Ok(Json(reply))
}

/// Answers who is gone, or, as soon as the job has failed, why.
async fn watch(
    State(state): State<FabricState>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<GoneMembers>, ApiError> {
    let name = JobName::new(&name)?;
    let body: WatchBody = body::read_long(&permit, body, MAX_WATCH_BODY).await?;
    let broken = broken(&state, &body)?;
    tokio::select! {
        biased;
        broken = broken => Ok(Json(broken)),
        gone = routes::watched(&state.api, peer, &guard, &permit, &name, body) => gone,
    }
}

/// The same at a switch other than the controller. The controller may be dead, so every switch checks the trees itself.
async fn watch_at_follower(
    State(state): State<FabricState>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    uri: axum::http::Uri,
    body: Body,
) -> Result<Response, ApiError> {
    let body: WatchBody = body::read_long(&permit, body, MAX_WATCH_BODY).await?;
    let broken = broken(&state, &body)?;
    let request = super::api::json(&body);
    tokio::select! {
        biased;
        broken = broken => Ok(Json(broken).into_response()),
        answer = forward_bytes(&state, peer, &guard, &uri, &request) => answer,
    }
}

/// Waits until the job that a watch names has failed, and then returns the answer to the watch.
fn broken(state: &FabricState, body: &WatchBody) -> Result<impl Future<Output = GoneMembers> + use<>, ApiError> {
    let (job, key, handle) = (JobId(body.job_id), routes::parse_key(&body.key)?, Arc::clone(&state.handle));
    Ok(async move { GoneMembers { broken: Some(handle.broken(job, key).await), ..GoneMembers::default() } })
}

async fn forward(
    State(state): State<FabricState>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    uri: axum::http::Uri,
    bytes: Body,
) -> Result<Response, ApiError> {
    let request = body::read_bytes(bytes, body::MAX_BODY + modules::MOST_BYTES).await?;
    forward_bytes(&state, peer, &guard, &uri, &request).await
}

async fn forward_bytes(
    state: &FabricState,
    peer: Peer,
    guard: &ClosingGuard,
    uri: &axum::http::Uri,
    request: &[u8],
) -> Result<Response, ApiError> {
    let fabric = &state.fabric;
    let controller = &fabric.nodes[fabric.controller.index()];
    let control = controller.control.unwrap_or_else(|| fabric.udp(fabric.controller));
    let host = peer.from.to_string();
    let headers = [(SECRET_HEADER, fabric.secret.as_str()), (HOST_HEADER, &host)];
    // A worker that closes its connection drops this future. That closes our connection, and the controller withdraws the join.
    let call = async { call::post(control, uri.path(), request, &headers).await?.answer_and_stay().await };
    match call.await {
        Ok((answer, connection)) => {
            // As long as the worker keeps the connection of a watch open, our connection to the controller connection open too.
            if uri.path().ends_with("/watch") {
                guard.keep(connection);
            }
            let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
            Ok((status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response())
        }
        Err(why) => {
            let error = format!(
                "switch {}, where this fabric's jobs are formed, cannot be asked at {control}: {why}; start it again",
                controller.name
            );
            Err(ApiError::new(StatusCode::BAD_GATEWAY, NO_CONTROLLER, error))
        }
    }
}

/// Answers a restarted controller that asks for the jobs that are installed here.
async fn installed(State(state): State<FabricState>, headers: HeaderMap) -> Result<Json<InstalledReply>, ApiError> {
    check_secret(&state, &headers)?;
    let report = state.handle.report().receive().await.map_err(stopped)?;
    Ok(Json(InstalledReply { jobs: report.installed.iter().map(|(job, _)| JobBody::new(job)).collect() }))
}

fn stopped(error: Stopped) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "shard_stopped", error.to_string())
}

async fn sync(State(state): State<FabricState>, headers: HeaderMap, bytes: Body) -> Result<Json<SyncReply>, ApiError> {
    check_secret(&state, &headers)?;
    let bytes = body::read_bytes(bytes, MAX_SYNC_BODY).await?;
    let SyncBody { keep, install, shares, shared, broken } = body::from_json(&bytes)?;
    let library = state.api.plane.library();
    let has_modules = install.iter().any(|job| !job.modules.is_empty());
    let read = move || install.into_iter().map(|job| job.job(&library)).collect::<Result<Vec<_>, _>>();
    let install = body::compiling(has_modules, read).await?;
    let keep = keep.into_iter().map(JobId).collect();
    let shares = shares.into_iter().map(|(id, slots)| (JobId(id), slots)).collect();
    let shared = shared.iter().filter_map(|name| protocols::named(name)).collect();
    let broken = broken.into_iter().map(|broken| (JobId(broken.job_id), broken.why)).collect();
    let lacking =
        state.handle.sync(JobSync { keep, install, shares, shared, broken }).receive().await.map_err(stopped)?;
    let report = state.handle.report().receive().await.map_err(stopped)?;
    Ok(Json(SyncReply { lacking: lacking.into_iter().map(|id| id.0).collect(), jobs: JobReportBody::all(&report) }))
}
