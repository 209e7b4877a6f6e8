//! What members of jobs, child switches and servers ask of a switch: to join, to watch, to leave. The rules are those of
//! the control plane and, in a fabric, of [`FabricSwitch`](crate::fabric::FabricSwitch).

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Extension, Json, Router};
use tributary_control::{Client, Departed, JobName, Refusal};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::protocol::Placement;

use super::{Api, fabric};
use crate::api::error::ApiError;
use crate::api::{
    Done, GoneMembers, JoinBody, JoinReply, LeaveBody, OfferBody, OfferReply, RetireBody, ServedBody, StandingBody,
    SumsBody, SwitchJoinBody, SwitchJoinReply, SwitchLeaveBody, SwitchWatchBody, WatchBody,
};
use crate::api::{modules, parse_incarnation};
use crate::control_plane::{OpenWatch, used_by};
use crate::http::body::{parse_key, read, read_join, read_long};
use crate::http::connection_limits::ConnectionPermit;
use crate::http::{ClosingGuard, Peer};

/// The largest body of a switch's join. It has a thousand ranks.
const MAX_SWITCH_BODY: usize = 1024 * 1024 + modules::MOST_BYTES;

/// The routes of members and servers, where jobs are formed.
pub fn members() -> Router<Api> {
    Router::new()
        .route("/jobs/{name}/join", post(join))
        .route("/jobs/{name}/leave", post(leave))
        .route("/jobs/{name}/standing", post(standing))
        .route("/jobs/{name}/sums", post(sums))
        .route("/jobs/{name}/watch", post(watch))
        .route("/servers/watch", post(serve))
        .route("/servers/leave", post(retire))
}

/// The routes of child switches.
pub fn child_switches() -> Router<Api> {
    Router::new()
        .route("/jobs/{name}/switches/join", post(join_switch))
        .route("/jobs/{name}/switches/leave", post(leave_switch))
        .route("/jobs/{name}/switches/watch", post(watch_from_below))
}

/// The host that a request is from, and the client that is charged for it.
fn client(api: &Api, peer: Peer, permit: &ConnectionPermit, headers: &HeaderMap) -> Result<(IpAddr, Client), ApiError> {
    let from = api.fabric.as_ref().map_or(Ok(peer.from), |switch| fabric::sender(switch, headers, peer))?;
    Ok((from, permit.access().client(from, headers)?))
}

async fn join(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<JoinReply>, ApiError> {
    let (from, client) = client(&api, peer, &permit, &headers)?;
    let name = JobName::new(&name)?;
    let library = api.plane.library();
    let body: JoinBody = read_join(&permit, body).await?;
    let (charged, modules, own_ip) = (client.clone(), body.modules.clone(), body.udp_ip);
    let read = move || body.request(from, peer.local_ip, client, &library);
    let mut request = api.compile_queue.run(&charged, &modules, read).await?;
    let (rank, world_size, addr) = (request.rank, request.world_size, request.addr);
    tracing::debug!(job = %name, rank, world_size, %addr, "join");
    if let Some(fabric) = &api.fabric {
        fabric.layout.fit(&mut request);
    }
    let plan = api.plane.join(&name, request, own_ip).await?;
    // The job's machine knows a worker by its index among the children. If there is no machine, packets go from rank to
    // rank.
    let aggregates = plan.protocol.placement == Placement::Trees;
    let wid = plan.child_of(rank).filter(|_| aggregates).unwrap_or(ChildId(rank));
    let mut ports = api.shard_ports();
    ports.truncate(used_by(plan.protocol));
    let mut reply = JoinReply::new(&plan, wid, api.listen, ports);
    if let Some(fabric) = &api.fabric {
        // No rank can reach a server itself: each exchanges packets with its own switch only.
        api.plane.until_served(&plan).await;
        fabric.complete_reply(&mut reply, &plan, rank).await;
    }
    Ok(Json(reply))
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
    let (library, charged, modules) = (api.plane.library(), client.clone(), join.modules.clone());
    let read = move || join.join(peer.from, peer.local_ip, &client, &library);
    let join = api.compile_queue.run(&charged, &modules, read).await?;
    let (ranks, incarnation) = (join.ranks.len(), join.incarnation);
    let from = peer.from;
    tracing::debug!(job = %name, ranks, %from, "a child switch joins");
    let plan = api.plane.join_switch(&name, join).await?;
    let wid = plan.children.iter().position(|child| child.incarnation == Some(incarnation)).unwrap_or_default();
    Ok(Json(SwitchJoinReply::new(&plan, ChildId(wid as u16), api.listen, api.shard_ports())))
}

async fn leave_switch(State(api): State<Api>, Path(name): Path<String>, body: Body) -> Result<Json<Done>, ApiError> {
    let name = JobName::new(&name)?;
    let SwitchLeaveBody { job_id, key, wid, incarnation, completed } = read(body).await?;
    let (id, key) = (JobId(job_id), parse_key(&key)?);
    api.plane.check_child(&name, id, key, ChildId(wid), parse_incarnation(&incarnation)?)?;
    api.plane.leave_switch(&name, id, key, ChildId(wid), completed)?;
    tracing::debug!(job = %name, wid, completed, "a child switch leaves");
    Ok(Json(Done {}))
}

async fn leave(State(api): State<Api>, Path(name): Path<String>, body: Body) -> Result<Json<Done>, ApiError> {
    let name = JobName::new(&name)?;
    let LeaveBody { job_id, key, rank, completed } = read(body).await?;
    api.plane.leave(&name, JobId(job_id), rank, parse_key(&key)?, completed)?;
    tracing::debug!(job = %name, rank, completed, "leave");
    Ok(Json(Done {}))
}

async fn standing(State(api): State<Api>, Path(name): Path<String>, body: Body) -> Result<Json<Done>, ApiError> {
    let name = JobName::new(&name)?;
    let StandingBody { job_id, key } = read(body).await?;
    api.plane.standing(&name, JobId(job_id), parse_key(&key)?)?;
    Ok(Json(Done {}))
}

/// Takes a report for operators.
async fn sums(State(api): State<Api>, Path(name): Path<String>, body: Body) -> Result<Json<Done>, ApiError> {
    let name = JobName::new(&name)?;
    let SumsBody { job_id, key, sums } = read(body).await?;
    sums.check().map_err(ApiError::bad_request)?;
    api.plane.note_large_sums(&name, JobId(job_id), parse_key(&key)?, sums)?;
    Ok(Json(Done {}))
}

/// Answers who is gone, or, as soon as the job has failed, why.
async fn watch(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<GoneMembers>, ApiError> {
    let name = JobName::new(&name)?;
    let most = most_of_a_watch(&api, &name)?;
    let WatchBody { job_id, key, rank, gone } = read_long(&permit, body, most).await?;
    let (id, key) = (JobId(job_id), parse_key(&key)?);
    let watched = async {
        mark_as_watch(&api, &permit, &name, id, key)?;
        answer(&guard, api.plane.watch(&name, id, rank, key, gone.table(peer.from)).await)
    };
    tokio::select! {
        biased;
        sentence = failure(&api, &name, id, key) => Ok(Json(GoneMembers::failed(sentence))),
        error = stopping(&api, &headers) => Err(error),
        watched = watched => watched,
    }
}

/// Waits until a job has failed, and returns the reason, for those who have the job's key.
async fn failure(api: &Api, name: &JobName, id: JobId, key: JobKey) -> String {
    match &api.fabric {
        Some(fabric) => fabric.handle.broken(id, key).await,
        None if api.plane.standing(name, id, key).is_ok() => api.plane.fault(id).await,
        None => std::future::pending().await,
    }
}

/// Waits until this switch stops and jobs go on elsewhere, as in a fabric. Elsewhere its jobs end with it.
async fn stopping(api: &Api, headers: &HeaderMap) -> ApiError {
    match &api.fabric {
        Some(switch) => fabric::stopping(switch, headers).await,
        None => std::future::pending().await,
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
    let SwitchWatchBody { job_id, key, wid, incarnation, below, gone } = read_long(&permit, body, most).await?;
    let (id, key, wid) = (JobId(job_id), parse_key(&key)?, ChildId(wid));
    api.plane.check_child(&name, id, key, wid, parse_incarnation(&incarnation)?)?;
    mark_as_watch(&api, &permit, &name, id, key)?;
    let knows_failure = gone.broken.is_some();
    if let Some(sentence) = below.broken.clone() {
        api.plane.note_fault(id, sentence);
    }
    let (below, gone) = (below.table(peer.from), gone.table(peer.from));
    tokio::select! {
        biased;
        sentence = api.plane.fault(id), if !knows_failure => {
            Ok(Json(GoneMembers::failed(sentence)))
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

/// Takes the offer of a server; answered when its jobs differ from those that it knows of.
async fn serve(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<OfferReply>, ApiError> {
    let (from, client) = client(&api, peer, &permit, &headers)?;
    let body: OfferBody = read(body).await?;
    let offer = body.offer(from, client)?;
    match &api.fabric {
        Some(fabric) => fabric.may_serve(&offer, from)?,
        None => api.plane.with_control(|control| control.may_serve(&offer, from, peer.local_ip))?,
    }
    api.plane.validate_server(&offer, peer.local_ip).await?;
    if api.plane.with_control(|control| !control.served_by(offer.incarnation).is_empty()) {
        // Running jobs need this connection. If its client has too many watches, it stays an ordinary one.
        let _ = permit.mark_as_watch();
    }
    let (changes, jobs, open) = api.plane.serve(offer, body.known).await?;
    guard.keep(open);
    let jobs = jobs.iter().filter_map(|(plan, server)| match &api.fabric {
        Some(fabric) => fabric.served(plan, *server),
        None => Some(ServedBody::new(plan, *server)),
    });
    Ok(Json(OfferReply { changes, jobs: jobs.collect() }))
}

async fn retire(State(api): State<Api>, body: Body) -> Result<Json<Done>, ApiError> {
    api.plane.retire(read::<RetireBody>(body).await?.incarnation()?);
    Ok(Json(Done {}))
}
