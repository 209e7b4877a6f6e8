//! What operators may do, with a token: end jobs, evict members, ban clients, and let no new job begin. The log says who did it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Extension, Json, Router};
use tributary_control::JobName;

use super::Api;
use crate::api::Done;
use crate::api::error::ApiError;
use crate::client::operators::{BanBody, EvictBody};
use crate::http::body::read;
use crate::http::connection_limits::ConnectionPermit;

/// The routes of operators, where jobs are formed.
pub fn acts() -> Router<Api> {
    Router::new()
        .route("/jobs/{name}/end", post(end))
        .route("/jobs/{name}/evict", post(evict))
        .route("/clients/ban", post(ban))
        .route("/clients/unban", post(unban))
        .route("/cordon", post(cordon))
        .route("/uncordon", post(uncordon))
}

type Permit = Extension<Arc<ConnectionPermit>>;

async fn end(
    State(api): State<Api>,
    Extension(permit): Permit,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Done>, ApiError> {
    let access = permit.access();
    let (operator, name) = (access.operator(&headers)?, JobName::new(&name)?);
    let ids = api.plane.with_control(|control| control.jobs_named(&name))?;
    tracing::warn!(operator, job = %name, "an operator ends a job");
    let sentence = format!("operator '{operator}' has ended job '{name}'");
    if let Some(fabric) = &api.fabric {
        fabric.fail(&ids, &sentence).await;
    }
    api.plane.end_jobs(&name, &ids, operator, sentence).await;
    Ok(Json(Done {}))
}

async fn evict(
    State(api): State<Api>,
    Extension(permit): Permit,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Done>, ApiError> {
    let access = permit.access();
    let (operator, name) = (access.operator(&headers)?, JobName::new(&name)?);
    let EvictBody { rank } = read(body).await?;
    api.plane.evict(&name, rank)?;
    tracing::warn!(operator, job = %name, rank, "an operator evicts a member");
    Ok(Json(Done {}))
}

async fn ban(
    State(api): State<Api>,
    Extension(permit): Permit,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Done>, ApiError> {
    set_banned(&api, &permit, &headers, body, true).await
}

async fn unban(
    State(api): State<Api>,
    Extension(permit): Permit,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Done>, ApiError> {
    set_banned(&api, &permit, &headers, body, false).await
}

async fn set_banned(
    api: &Api,
    permit: &ConnectionPermit,
    headers: &HeaderMap,
    body: Body,
    banned: bool,
) -> Result<Json<Done>, ApiError> {
    let access = permit.access();
    let operator = access.operator(headers)?;
    let BanBody { client } = read(body).await?;
    let client = access.client_named(&client)?;
    tracing::warn!(operator, %client, banned, "an operator bans a client, or takes it again");
    api.plane.set_banned(client, banned);
    Ok(Json(Done {}))
}

async fn cordon(State(api): State<Api>, Extension(permit): Permit, headers: HeaderMap) -> Result<Json<Done>, ApiError> {
    set_cordoned(&api, &permit, &headers, true)
}

async fn uncordon(
    State(api): State<Api>,
    Extension(permit): Permit,
    headers: HeaderMap,
) -> Result<Json<Done>, ApiError> {
    set_cordoned(&api, &permit, &headers, false)
}

fn set_cordoned(
    api: &Api,
    permit: &ConnectionPermit,
    headers: &HeaderMap,
    cordoned: bool,
) -> Result<Json<Done>, ApiError> {
    let access = permit.access();
    let operator = access.operator(headers)?;
    tracing::warn!(operator, cordoned, "an operator cordons the switch, or lets jobs begin again");
    api.plane.set_cordoned(cordoned);
    Ok(Json(Done {}))
}
