//! The routes of the control API, the same at every switch, and what operators read.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use tributary_control::{JobName, OperatorAct, Refusal};

use super::{Api, fabric, jobs, operators};
use crate::api::error::{ApiError, ErrorInfo};
use crate::api::{Jobs, version};
use crate::history::History;
use crate::http::connection_limits::ConnectionPermit;
use crate::http::{PAGE_PATH, Peer, page};
use crate::metrics;
use crate::status::{Ended, SwitchInfo, SwitchStatus};

/// The controller of a fabric tells each switch its jobs every second.
const CONTROLLER_SILENT_S: f64 = 5.0;
/// The most characters of a path that the log repeats. A job's name and the rest of its path fit.
const LOGGED_PATH: usize = 128;

/// Who uses an address of the control API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Members of jobs, servers and other switches. Everything is served.
    Members,
    /// Operators. Nothing is served that changes anything, except to those who have an operator's token.
    Operators,
}

/// The routes for this role.
pub fn router(api: Api, role: Role) -> Router {
    let posts = match (role, &api.fabric) {
        (Role::Operators, _) => operators::acts(),
        (Role::Members, None) => jobs::members().merge(jobs::child_switches()).merge(operators::acts()),
        (Role::Members, Some(switch)) if switch.controller.is_some() => {
            jobs::members().merge(operators::acts()).merge(fabric::controller())
        }
        (Role::Members, Some(switch)) => fabric::follower(&api, switch),
    };
    let router = readable().merge(posts).with_state(api.clone());
    let router = router.fallback(nothing_there).method_not_allowed_fallback(wrong_method);
    let router = router.layer(middleware::from_fn(authorize)).layer(middleware::from_fn(check_version));
    router.layer(middleware::from_fn_with_state(api, note_errors))
}

/// Refuses all requests of another version, and names our version in each answer.
async fn check_version(request: Request, next: Next) -> Response {
    let mut response = match request.headers().get(version::HEADER).map(version_of) {
        Some(Err(error)) => error.into_response(),
        Some(Ok(theirs)) if theirs != version::API_VERSION => ApiError::api_version(theirs).into_response(),
        _ => next.run(request).await,
    };
    response.headers_mut().insert(HeaderName::from_static(version::HEADER), HeaderValue::from(version::API_VERSION));
    response
}

fn version_of(header: &HeaderValue) -> Result<u16, ApiError> {
    let number = header.to_str().ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| ApiError::bad_request(format!("{} is not the number of a version", version::HEADER)))
}

fn readable() -> Router<Api> {
    Router::new()
        .route(PAGE_PATH, get(page))
        .route("/status", get(status))
        .route("/history", get(history))
        .route("/events", get(events))
        .route("/switch", get(switch))
        .route("/jobs", get(all_jobs))
        .route("/ended", get(ended))
        .route("/jobs/{name}", get(job))
        .route("/metrics", get(switch_metrics))
        .route("/metrics/jobs", get(job_metrics))
        .route("/livez", get(livez))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
}

/// Counts answers that are errors. Logs refused joins with their clients, and unauthorised clients, for operators.
async fn note_errors(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    request: Request,
    next: Next,
) -> Response {
    let (plane, headers) = (&api.plane, request.headers());
    let from = api.fabric.as_ref().map_or(Ok(peer.from), |switch| fabric::sender(switch, headers, peer));
    let from = from.unwrap_or(peer.from);
    let client = permit.access().client(from, headers).ok();
    // Anybody can write any path of any length.
    let path: String = request.uri().path().chars().take(LOGGED_PATH).collect();
    let response = next.run(request).await;
    if let Some(ErrorInfo { code, error }) = response.extensions().get() {
        plane.count_error(code);
        let is_unauthorised = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        match path.strip_prefix("/jobs/").and_then(|rest| rest.strip_suffix("/join")) {
            Some(job) => {
                if let Some(client) = &client {
                    plane.count_refusal(client, code);
                }
                let client = client.map(tracing::field::display);
                tracing::info!(job, %from, client, code, error, "join refused");
            }
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
    // The page has no data of the switch, and asks the user for the token that its own requests need. Switches of a fabric
    // show each other its secret.
    let path = request.uri().path();
    let is_page = path == PAGE_PATH && permit.access().asks_for_tokens();
    if !is_page && !path.starts_with("/fabric/") {
        permit.access().check(peer.from, request.headers())?;
    }
    Ok(next.run(request).await)
}

async fn status(State(api): State<Api>, Extension(peer): Extension<Peer>) -> Json<SwitchStatus> {
    let mut status = api.viewer.status().await;
    status.switch.link_bits_per_s = api.viewer.link_bits_per_s(peer.local_ip);
    Json(status)
}

async fn history(State(api): State<Api>) -> Json<History> {
    Json(api.viewer.history())
}

/// Follows the switch for as long as the client may look.
async fn events(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let viewer = Arc::clone(&api.viewer);
    let may = move || permit.access().check(peer.from, &headers).is_ok();
    api.viewer.events().follow(async move { viewer.overview().await }, may)
}

async fn switch(State(api): State<Api>) -> Json<SwitchInfo> {
    Json(api.viewer.status().await.switch)
}

async fn all_jobs(State(api): State<Api>) -> Json<Jobs> {
    Json(Jobs { jobs: api.viewer.status().await.jobs })
}

async fn ended(State(api): State<Api>) -> Json<Ended> {
    Json(Ended { ended: api.plane.ended_jobs() })
}

/// All jobs of a name: the job that has the name now, and earlier jobs of the name that still hold memory.
async fn job(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<Jobs>, ApiError> {
    let name = JobName::new(&name)?;
    let mut jobs = api.viewer.status().await.jobs;
    jobs.retain(|job| job.name == name.as_str());
    if jobs.is_empty() {
        return Err(Refusal::UnknownJob { job: name }.into());
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

/// Whether a restart would help: the switch's own threads have not all stopped.
async fn livez(State(api): State<Api>) -> Result<&'static str, ApiError> {
    match api.plane.samples().await.shards.iter().position(|shard| !shard.alive) {
        None => Ok("ok\n"),
        Some(dead) => {
            let error = format!("shard {dead} of the switch has stopped: restart the switch");
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "shard_stopped", error))
        }
    }
}

/// Whether jobs can run: the switch above, or the controller of the fabric, must answer too.
async fn healthz(State(api): State<Api>) -> Result<&'static str, ApiError> {
    livez(State(api.clone())).await?;
    if let (Some(parent), Some(why)) = (api.plane.parent(), api.plane.parent_failure()) {
        let error = format!("jobs are formed at the parent switch {parent}, and it is not healthy: {why}");
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "parent_down", error));
    }
    if let Some(fabric) = &api.viewer.status().await.switch.fabric
        && let Some(silent_s) = fabric.controller_silent_s.filter(|&silent_s| silent_s > CONTROLLER_SILENT_S)
    {
        let error = format!(
            "jobs are formed at switch {}, which has been silent for {silent_s:.0} s: start it again",
            fabric.controller
        );
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "controller_down", error));
    }
    Ok("ok\n")
}

/// Whether new jobs may come here.
async fn readyz(State(api): State<Api>) -> Result<&'static str, ApiError> {
    if api.plane.with_control(|control| control.is_stopping()) {
        return Err(Refusal::Stopping.into());
    }
    if api.plane.with_control(|control| control.is_cordoned()) {
        return Err(Refusal::from(OperatorAct::Cordoned).into());
    }
    healthz(State(api)).await
}

async fn nothing_there() -> ApiError {
    let error = "there is nothing here; GET / in a browser, or /status, /history, /events, /switch, /jobs, /jobs/NAME, /ended, /metrics, /metrics/jobs, /livez, /healthz or /readyz";
    ApiError::new(StatusCode::NOT_FOUND, "not_found", error.into())
}

async fn wrong_method() -> ApiError {
    let error = "this address takes another method: GET to read, POST to join, to leave, to ask for the standing, and for operators to act";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", error.into())
}
