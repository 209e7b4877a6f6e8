//! The control API of a fabric switch: the seat answers requests as every switch does, and the other switches pass them
//! on to the seat.

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

use super::api::{FoundReply, HOST_HEADER, JobBody, JobSign, SECRET_HEADER, SyncBody, SyncReply};
use super::handle::FabricHandle;
use super::seat::{MAX_SYNC_BODY, Seat};
use super::told::Told;
use super::{places, servers};
use crate::api::call;
use crate::api::error::ApiError;
use crate::api::modules;
use crate::api::{GoneMembers, JoinBody, JoinReply, NO_SEAT, WatchBody};
use crate::http::body;
use crate::http::door::Visit;
use crate::http::routes::{self, Api};
use crate::http::{Held, Peer};
use crate::shard::Stopped;

/// Largest body of a watch: all ranks of a job may be gone, and the switches that they were behind.
const MAX_WATCH_BODY: usize = 1_024 + 128 * JobConfig::MAX_WORLD as usize;

/// The data that the handlers of a fabric switch work on.
#[derive(Clone)]
pub struct Place {
    pub api: Api,
    pub fabric: Arc<FabricLayout>,
    pub handle: Arc<FabricHandle>,
    /// At the seat: the planner of jobs.
    pub seat: Option<Seat>,
}

/// The routes at the seat, where jobs are formed.
pub fn seat(place: Place) -> Router {
    let own = Router::new()
        .route("/jobs/{name}/join", post(join))
        .route("/jobs/{name}/watch", post(watch))
        .route("/servers/watch", post(servers::serve))
        .with_state(place.clone());
    let same = Router::new()
        .route("/jobs/{name}/leave", post(routes::leave))
        .route("/jobs/{name}/standing", post(routes::standing))
        .route("/servers/leave", post(routes::retire))
        .with_state(place.api.clone());
    routes::with_fallbacks(routes::readable(place.api.clone()).merge(own).merge(same), place.api.plane)
}

/// The routes at every other switch. Requests are passed on to the seat, which decides what is installed here.
pub fn elsewhere(place: Place) -> Router {
    let own = Router::new()
        .route("/jobs/{name}/join", post(pass_on))
        .route("/jobs/{name}/leave", post(pass_on))
        .route("/jobs/{name}/standing", post(pass_on))
        .route("/jobs/{name}/watch", post(watch_elsewhere))
        .route("/servers/watch", post(pass_on))
        .route("/servers/leave", post(pass_on))
        .route("/fabric/sync", post(sync))
        .route("/fabric/jobs", post(installed))
        .with_state(place.clone());
    routes::with_fallbacks(routes::readable(place.api.clone()).merge(own), place.api.plane)
}

/// Whom a request is from: the host that a switch passes it on for, or who has sent it.
pub(super) fn sender(place: &Place, headers: &HeaderMap, peer: Peer) -> Result<IpAddr, ApiError> {
    let Some(host) = headers.get(HOST_HEADER) else { return Ok(peer.from) };
    is_ours(place, headers)?;
    let host = host.to_str().ok().and_then(|host| host.parse().ok());
    host.ok_or_else(|| ApiError::bad_request(format!("{HOST_HEADER} is no address")))
}

fn is_ours(place: &Place, headers: &HeaderMap) -> Result<(), ApiError> {
    let secret = headers.get(SECRET_HEADER).map_or(&[][..], |secret| secret.as_bytes());
    let expected = place.fabric.secret.as_bytes();
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
    State(place): State<Place>,
    Extension(peer): Extension<Peer>,
    Path(name): Path<String>,
    Extension(visit): Extension<Arc<Visit>>,
    headers: HeaderMap,
    bytes: Body,
) -> Result<Json<JoinReply>, ApiError> {
    let name = JobName::new(&name)?;
    let from = sender(&place, &headers, peer)?;
    let body: JoinBody = body::read_join(&visit, bytes).await?;
    let library = place.api.plane.library();
    let has_modules = !body.modules.is_empty();
    let read = move || body.request(from, peer.asked_at, Client::at(from), &library);
    let mut request = body::compiling(has_modules, read).await?;
    place.fabric.fit(&mut request);
    let rank = request.rank;
    let plan = place.api.plane.join(&name, request).await?;
    // No rank can ask a server itself: each speaks to its own switch alone.
    place.api.plane.until_served(&plan).await;
    let mut reply = JoinReply::new(&plan, ChildId(rank), place.api.listen, vec![place.fabric.port]);
    // A job that could not be told to all switches is gone already. Its members cannot use it.
    let planned = async { place.seat.as_ref()?.job(plan.config.job).await };
    if let Some(planned) = planned.await {
        reply.slots = planned.job.most_slots;
        reply.fabric = places::told(&place.fabric, &planned, rank);
    }
    Ok(Json(reply))
}

/// Answers who is gone, or, as soon as the job can never go on, why.
async fn watch(
    State(place): State<Place>,
    Extension(peer): Extension<Peer>,
    Extension(held): Extension<Held>,
    Extension(visit): Extension<Arc<Visit>>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<GoneMembers>, ApiError> {
    let name = JobName::new(&name)?;
    let body: WatchBody = body::read_long(&visit, body, MAX_WATCH_BODY).await?;
    let broken = broken(&place, &body)?;
    tokio::select! {
        biased;
        broken = broken => Ok(Json(broken)),
        gone = routes::watched(&place.api, peer, &held, &visit, &name, body) => gone,
    }
}

/// The same at a switch other than the seat. The seat may be dead, so every switch checks the trees itself.
async fn watch_elsewhere(
    State(place): State<Place>,
    Extension(peer): Extension<Peer>,
    Extension(held): Extension<Held>,
    Extension(visit): Extension<Arc<Visit>>,
    uri: axum::http::Uri,
    body: Body,
) -> Result<Response, ApiError> {
    let body: WatchBody = body::read_long(&visit, body, MAX_WATCH_BODY).await?;
    let broken = broken(&place, &body)?;
    let request = super::api::json(&body);
    tokio::select! {
        biased;
        broken = broken => Ok(Json(broken).into_response()),
        answer = pass_on_bytes(&place, peer, &held, &uri, &request) => answer,
    }
}

/// Waits until the job that a watch names can never go on, and then gives the answer to the watch.
fn broken(place: &Place, body: &WatchBody) -> Result<impl Future<Output = GoneMembers> + use<>, ApiError> {
    let (job, key, handle) = (JobId(body.job_id), routes::parse_key(&body.key)?, Arc::clone(&place.handle));
    Ok(async move { GoneMembers { broken: Some(handle.broken(job, key).await), ..GoneMembers::default() } })
}

async fn pass_on(
    State(place): State<Place>,
    Extension(peer): Extension<Peer>,
    Extension(held): Extension<Held>,
    uri: axum::http::Uri,
    bytes: Body,
) -> Result<Response, ApiError> {
    let request = body::read_bytes(bytes, body::MAX_BODY + modules::MOST_BYTES).await?;
    pass_on_bytes(&place, peer, &held, &uri, &request).await
}

async fn pass_on_bytes(
    place: &Place,
    peer: Peer,
    held: &Held,
    uri: &axum::http::Uri,
    request: &[u8],
) -> Result<Response, ApiError> {
    let fabric = &place.fabric;
    let seat = &fabric.nodes[fabric.controller.index()];
    let control = seat.control.unwrap_or_else(|| fabric.udp(fabric.controller));
    let host = peer.from.to_string();
    let headers = [(SECRET_HEADER, fabric.secret.as_str()), (HOST_HEADER, &host)];
    // A worker that closes its connection drops this future. That closes our connection, and the seat takes the join
    // back.
    let call = async { call::post(control, uri.path(), request, &headers).await?.answer_and_stay().await };
    match call.await {
        Ok((answer, stays)) => {
            // As long as the worker keeps the connection of a watch open, our connection to the seat stays open too.
            if uri.path().ends_with("/watch") {
                held.keep(stays);
            }
            let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
            Ok((status, [(header::CONTENT_TYPE, "application/json")], answer.body).into_response())
        }
        Err(why) => {
            let error = format!(
                "switch {}, where this fabric's jobs are formed, cannot be asked at {control}: {why}; start it again",
                seat.name
            );
            Err(ApiError::new(StatusCode::BAD_GATEWAY, NO_SEAT, error))
        }
    }
}

/// Answers a seat that was started again and asks for the jobs that are installed here.
async fn installed(State(place): State<Place>, headers: HeaderMap) -> Result<Json<FoundReply>, ApiError> {
    is_ours(&place, &headers)?;
    let report = place.handle.report().come().await.map_err(stopped)?;
    Ok(Json(FoundReply { jobs: report.installed.iter().map(|(job, _)| JobBody::new(job)).collect() }))
}

fn stopped(error: Stopped) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "shard_stopped", error.to_string())
}

async fn sync(State(place): State<Place>, headers: HeaderMap, bytes: Body) -> Result<Json<SyncReply>, ApiError> {
    is_ours(&place, &headers)?;
    let bytes = body::read_bytes(bytes, MAX_SYNC_BODY).await?;
    let SyncBody { keep, install, shares, shared, broken } = body::from_json(&bytes)?;
    let library = place.api.plane.library();
    let has_modules = install.iter().any(|job| !job.modules.is_empty());
    let read = move || install.into_iter().map(|job| job.job(&library)).collect::<Result<Vec<_>, _>>();
    let install = body::compiling(has_modules, read).await?;
    let keep = keep.into_iter().map(JobId).collect();
    let shares = shares.into_iter().map(|(id, slots)| (JobId(id), slots)).collect();
    let shared = shared.iter().filter_map(|name| protocols::named(name)).collect();
    let broken = broken.into_iter().map(|broken| (JobId(broken.job_id), broken.why)).collect();
    let lacking = place.handle.sync(Told { keep, install, shares, shared, broken }).come().await.map_err(stopped)?;
    let report = place.handle.report().come().await.map_err(stopped)?;
    Ok(Json(SyncReply { lacking: lacking.into_iter().map(|id| id.0).collect(), jobs: JobSign::all(&report) }))
}
