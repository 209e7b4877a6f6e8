//! The routes of the control API: members' requests, and what operators read.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use tributary_control::{Departed, JobName, Refusal};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::protocol::Placement;

use crate::api::error::{ApiError, ErrorInfo};
use crate::api::modules;
use crate::api::{
    Done, GoneMembers, Jobs, JoinBody, JoinReply, LeaveBody, OfferBody, OfferReply, RetireBody, ServedBody,
    StandingBody, SwitchJoinBody, SwitchJoinReply, SwitchLeaveBody, SwitchWatchBody, WatchBody, from_hex, version,
};
use crate::control_plane::{ControlPlane, OpenWatch, used_by};
use crate::history::History;
use crate::http::access::Access;
use crate::http::body::{compiling, read, read_join, read_long};
use crate::http::connection_limits::ConnectionPermit;
use crate::http::view::Viewer;
use crate::http::{ClosingGuard, PAGE_PATH, Peer, page};
use crate::metrics;
use crate::status::{SwitchInfo, SwitchStatus};

/// The largest body of a switch's join. It has a thousand ranks.
const MAX_SWITCH_BODY: usize = 1024 * 1024 + modules::MOST_BYTES;

/// The most characters of a path that the log repeats. A job's name and the rest of its path fit.
const LOGGED_PATH: usize = 128;

/// The data that the handlers work on.
#[derive(Clone)]
pub(crate) struct Api {
    pub plane: Arc<ControlPlane>,
    pub viewer: Arc<Viewer>,
    pub listen: SocketAddr,
}

/// All routes, for the address that members know.
pub fn members(api: Api) -> Router {
    let posts = Router::new()
        .route("/jobs/{name}/join", post(join))
        .route("/jobs/{name}/leave", post(leave))
        .route("/jobs/{name}/standing", post(standing))
        .route("/jobs/{name}/watch", post(watch))
        .route("/jobs/{name}/switches/join", post(join_switch))
        .route("/jobs/{name}/switches/leave", post(leave_switch))
        .route("/jobs/{name}/switches/watch", post(watch_from_below))
        .route("/servers/watch", post(serve))
        .route("/servers/leave", post(retire))
        .with_state(api.clone());
    with_fallbacks(readable(api.clone()).merge(posts), api.plane)
}

/// The routes that change nothing, for the operators' own address.
pub fn operators(api: Api) -> Router {
    with_fallbacks(readable(api.clone()), api.plane)
}

impl Api {
    fn shard_ports(&self) -> Vec<u16> {
        self.plane.shard_addrs().iter().map(|addr| addr.port()).collect()
    }
}

pub(crate) fn readable(api: Api) -> Router {
    Router::new()
        .route(PAGE_PATH, get(page))
        .route("/status", get(status))
        .route("/history", get(history))
        .route("/switch", get(switch))
        .route("/jobs", get(jobs))
        .route("/jobs/{name}", get(job))
        .route("/metrics", get(switch_metrics))
        .route("/metrics/jobs", get(job_metrics))
        .route("/healthz", get(healthz))
        .with_state(api)
}

pub(crate) fn with_fallbacks(router: Router, plane: Arc<ControlPlane>) -> Router {
    let router = router.fallback(nothing_there).method_not_allowed_fallback(wrong_method);
    let router = router.layer(middleware::from_fn(authorize)).layer(middleware::from_fn(version::check));
    router.layer(middleware::from_fn_with_state(plane, note_errors))
}

/// Counts answers that are errors. Logs refused joins and unauthorised clients, for operators.
async fn note_errors(
    State(plane): State<Arc<ControlPlane>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    // Anybody can write any path of any length.
    let path: String = request.uri().path().chars().take(LOGGED_PATH).collect();
    let response = next.run(request).await;
    if let Some(ErrorInfo { code, error }) = response.extensions().get() {
        plane.count_error(code);
        let (from, is_unauthorised) =
            (peer.from, matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN));
        match path.strip_prefix("/jobs/").and_then(|rest| rest.strip_suffix("/join")) {
            Some(job) => tracing::info!(job, %from, code, error, "join refused"),
            None if is_unauthorised => tracing::info!(path, %from, code, error, "request refused"),
            None => tracing::debug!(path, %from, code, error, "request failed"),
        }
    }
    response
}

/// Refuses every request of a client that may not use the switch.
async fn authorize(
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    // The page has no data of the switch, and asks the user for the token that its own requests need.
    let is_page = request.uri().path() == PAGE_PATH && matches!(*permit.access(), Access::Tokens(_));
    if !is_page {
        permit.access().check(peer.from, request.headers())?;
    }
    Ok(next.run(request).await)
}

async fn join(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<JoinReply>, ApiError> {
    let client = permit.access().client(peer.from, &headers)?;
    let name = JobName::new(&name)?;
    let library = api.plane.library();
    let body: JoinBody = read_join(&permit, body).await?;
    let request =
        compiling(!body.modules.is_empty(), move || body.request(peer.from, peer.asked_at, client, &library)).await?;
    let (rank, world_size, addr) = (request.rank, request.world_size, request.addr);
    tracing::debug!(job = %name, rank, world_size, %addr, "join");
    let plan = api.plane.join(&name, request).await?;
    // The job's machine knows a worker by its index among the children. If there is no machine, packets go from rank to
    // rank.
    let aggregates = plan.protocol.placement == Placement::Trees;
    let wid = plan.child_of(rank).filter(|_| aggregates).unwrap_or(ChildId(rank));
    let mut ports = api.shard_ports();
    ports.truncate(used_by(plan.protocol));
    Ok(Json(JoinReply::new(&plan, wid, api.listen, ports)))
}

async fn join_switch(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<SwitchJoinReply>, ApiError> {
    let client = permit.access().client(peer.from, &headers)?;
    let name = JobName::new(&name)?;
    let join = read_long::<SwitchJoinBody>(&permit, body, MAX_SWITCH_BODY).await?;
    let library = api.plane.library();
    let join =
        compiling(!join.modules.is_empty(), move || join.join(peer.from, peer.asked_at, &client, &library)).await?;
    let (ranks, incarnation) = (join.ranks.len(), join.incarnation);
    let from = peer.from;
    tracing::debug!(job = %name, ranks, %from, "a child switch joins");
    let plan = api.plane.join_switch(&name, join).await?;
    let wid = plan.children.iter().position(|child| child.incarnation == Some(incarnation)).unwrap_or_default();
    Ok(Json(SwitchJoinReply::new(&plan, ChildId(wid as u16), api.listen, api.shard_ports())))
}

async fn leave_switch(State(api): State<Api>, Path(name): Path<String>, body: Body) -> Result<Json<Done>, ApiError> {
    let name = JobName::new(&name)?;
    let SwitchLeaveBody { job_id, key, wid, lost } = read(body).await?;
    api.plane.leave_switch(&name, JobId(job_id), parse_key(&key)?, ChildId(wid), lost)?;
    tracing::debug!(job = %name, wid, lost, "a child switch leaves");
    Ok(Json(Done {}))
}

pub(crate) async fn leave(
    State(api): State<Api>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<Done>, ApiError> {
    let name = JobName::new(&name)?;
    let LeaveBody { job_id, key, rank } = read(body).await?;
    api.plane.leave(&name, JobId(job_id), rank, parse_key(&key)?)?;
    tracing::debug!(job = %name, rank, "leave");
    Ok(Json(Done {}))
}

pub(crate) async fn standing(
    State(api): State<Api>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<Done>, ApiError> {
    let name = JobName::new(&name)?;
    let StandingBody { job_id, key } = read(body).await?;
    api.plane.standing(&name, JobId(job_id), parse_key(&key)?)?;
    Ok(Json(Done {}))
}

pub(crate) async fn watch(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<GoneMembers>, ApiError> {
    let name = JobName::new(&name)?;
    let most = most_of_a_watch(&api, &name)?;
    let body = read_long(&permit, body, most).await?;
    watched(&api, peer, &guard, &permit, &name, body).await
}

/// Answers a watch whose body has been read.
pub(crate) async fn watched(
    api: &Api,
    peer: Peer,
    guard: &ClosingGuard,
    permit: &ConnectionPermit,
    name: &JobName,
    WatchBody { job_id, key, rank, gone }: WatchBody,
) -> Result<Json<GoneMembers>, ApiError> {
    let (id, key) = (JobId(job_id), parse_key(&key)?);
    mark_as_watch(api, permit, name, id, key)?;
    tokio::select! {
        biased;
        sentence = api.plane.fault(id) => Ok(Json(GoneMembers { broken: Some(sentence), ..GoneMembers::default() })),
        watched = api.plane.watch(name, id, rank, key, gone.table(peer.from)) => answer(guard, watched),
    }
}

async fn watch_from_below(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Json<GoneMembers>, ApiError> {
    let name = JobName::new(&name)?;
    let most = most_of_a_watch(&api, &name)?;
    let SwitchWatchBody { job_id, key, wid, below, gone } = read_long(&permit, body, most).await?;
    let (id, key, wid) = (JobId(job_id), parse_key(&key)?, ChildId(wid));
    mark_as_watch(&api, &permit, &name, id, key)?;
    let knows_failure = gone.broken.is_some();
    if let Some(sentence) = below.broken.clone() {
        api.plane.note_fault(id, sentence);
    }
    let (below, gone) = (below.table(peer.from), gone.table(peer.from));
    tokio::select! {
        biased;
        sentence = api.plane.fault(id), if !knows_failure => {
            Ok(Json(GoneMembers { broken: Some(sentence), ..GoneMembers::default() }))
        }
        watched = api.plane.watch_from_below(&name, id, wid, key, below, gone) => answer(&guard, watched),
    }
}

/// The most bytes of a watch of the job with this name. All its ranks may be gone, and the switches below which
/// they were.
fn most_of_a_watch(api: &Api, name: &JobName) -> Result<usize, ApiError> {
    let world_size = api.plane.with_control(|control| control.world_size_of(name));
    let world_size = world_size.ok_or_else(|| Refusal::UnknownJob { job: name.clone() })?;
    Ok(1_024 + 128 * usize::from(world_size))
}

/// Counts the connection as one of a running job's member.
fn mark_as_watch(api: &Api, permit: &ConnectionPermit, name: &JobName, id: JobId, key: JobKey) -> Result<(), ApiError> {
    api.plane.standing(name, id, key)?;
    match permit.mark_as_watch() {
        true => Ok(()),
        false => {
            let error = "this switch watches as many members at your address as it can: whoever vanishes is noticed by its \
                         silence only";
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_watches", error.into()))
        }
    }
}

fn answer(
    guard: &ClosingGuard,
    watched: Result<(Departed, OpenWatch), Refusal>,
) -> Result<Json<GoneMembers>, ApiError> {
    let (gone, watch) = watched?;
    guard.keep(watch);
    Ok(Json(GoneMembers::new(&gone)))
}

async fn serve(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<OfferReply>, ApiError> {
    let client = permit.access().client(peer.from, &headers)?;
    let body: OfferBody = read(body).await?;
    let offer = body.offer(peer.from, client)?;
    api.plane.with_control(|control| control.may_serve(&offer, peer.from, peer.asked_at))?;
    api.plane.validate_server(&offer, peer.asked_at).await?;
    if api.plane.with_control(|control| !control.served_by(offer.incarnation).is_empty()) {
        // Running jobs need this connection. If its client has too many watches, it stays an ordinary one.
        let _ = permit.mark_as_watch();
    }
    let (changes, jobs, open) = api.plane.serve(offer, body.known).await?;
    guard.keep(open);
    Ok(Json(OfferReply { changes, jobs: jobs.iter().map(|(plan, server)| ServedBody::new(plan, *server)).collect() }))
}

pub(crate) async fn retire(State(api): State<Api>, body: Body) -> Result<Json<Done>, ApiError> {
    api.plane.retire(read::<RetireBody>(body).await?.incarnation()?);
    Ok(Json(Done {}))
}

async fn status(State(api): State<Api>) -> Json<SwitchStatus> {
    Json(api.viewer.status().await)
}

async fn history(State(api): State<Api>) -> Json<History> {
    Json(api.viewer.history())
}

async fn switch(State(api): State<Api>) -> Json<SwitchInfo> {
    Json(api.viewer.status().await.switch)
}

async fn jobs(State(api): State<Api>) -> Json<Jobs> {
    Json(Jobs { jobs: api.viewer.status().await.jobs })
}

/// All jobs of a name: the job that has the name now, and earlier jobs of the name that still hold memory.
async fn job(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<Jobs>, ApiError> {
    let name = JobName::new(&name)?;
    let mut jobs = api.viewer.status().await.jobs;
    jobs.retain(|job| job.name == name.as_str());
    if jobs.is_empty() {
        return Err(tributary_control::Refusal::UnknownJob { job: name }.into());
    }
    Ok(Json(Jobs { jobs }))
}

async fn switch_metrics(State(api): State<Api>) -> impl IntoResponse {
    exposition(metrics::switch_text(&api.viewer.metrics_input().await))
}

async fn job_metrics(State(api): State<Api>) -> impl IntoResponse {
    exposition(metrics::jobs_text(&api.viewer.metrics_input().await))
}

fn exposition(text: String) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn healthz(State(api): State<Api>) -> Result<&'static str, ApiError> {
    let status = api.viewer.status().await;
    match status.switch.shards.iter().find(|shard| !shard.alive) {
        None => Ok("ok\n"),
        Some(dead) => {
            let error = format!("shard {} of the switch has stopped: restart the switch", dead.shard);
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "shard_stopped", error))
        }
    }
}

async fn nothing_there() -> ApiError {
    let error = "there is nothing here; GET / in a browser, or /status, /history, /switch, /jobs, /jobs/NAME, /metrics, /metrics/jobs or /healthz";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", error.into())
}

async fn wrong_method() -> ApiError {
    let error = "this address takes another method: GET to read, POST to join, to leave and to ask for the standing";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", error.into())
}

pub(crate) fn parse_key(key: &str) -> Result<JobKey, ApiError> {
    from_hex(key).map(JobKey).ok_or_else(|| ApiError::bad_request("key is not of 16 hexadecimal digits".into()))
}
