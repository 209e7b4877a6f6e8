//! Servers that offer themselves to a fabric's jobs, at the controller. Other switches forward their offers, as they do with
//! requests of workers.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use tributary_control::Client;
use tributary_control::fabric::FabricLayout;
use tributary_control::servers::ServerOffer;

use super::endpoints;
use super::routes::{FabricState, sender};
use crate::api::error::ApiError;
use crate::api::{OfferBody, OfferReply, ServedBody};
use crate::http::body::read;
use crate::http::connection_limits::ConnectionPermit;
use crate::http::{ClosingGuard, Peer};

/// Takes the offer of a server; answered when its jobs differ from those that it knows of.
pub async fn serve(
    State(state): State<FabricState>,
    Extension(peer): Extension<Peer>,
    Extension(guard): Extension<ClosingGuard>,
    Extension(permit): Extension<Arc<ConnectionPermit>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<OfferReply>, ApiError> {
    let from = sender(&state, &headers, peer)?;
    let body: OfferBody = read(body).await?;
    let offer = body.offer(from, Client::at(from))?;
    may_serve(&state.fabric, &offer, from)?;
    let plane = &state.api.plane;
    if plane.with_control(|control| !control.served_by(offer.incarnation).is_empty()) {
        // Running jobs need this connection. If its client has too many watches, it stays an ordinary one.
        let _ = permit.mark_as_watch();
    }
    let (changes, served, open) = plane.serve(offer, body.known).await?;
    guard.keep(open);
    let jobs = served.iter().filter_map(|(plan, server)| {
        let fabric = Some(endpoints::server_reply(&state.fabric, plan, *server)?);
        Some(ServedBody { fabric, ..ServedBody::new(plan, *server) })
    });
    Ok(Json(OfferReply { changes, jobs: jobs.collect() }))
}

/// Checks that servers may be where this one is. A server reads the tensors of the jobs that it serves, and can end these jobs.
fn may_serve(fabric: &FabricLayout, offer: &ServerOffer, from: IpAddr) -> Result<(), ApiError> {
    let host_of = |address: IpAddr| fabric.node_at(address).filter(|node| fabric.servers.contains(node));
    let named: Vec<&str> = fabric.servers.iter().map(|&node| fabric.name(node)).collect();
    let refused = |at: IpAddr| {
        let hosts = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
        let error = format!(
            "this fabric takes servers from the hosts that its file names (servers = [...]: {hosts}), and {at} is not one of them: \
             name the host there, in the file of every switch"
        );
        Err(ApiError::new(StatusCode::FORBIDDEN, "not_a_server", error))
    };
    match (host_of(offer.addr.ip()), host_of(from)) {
        (None, _) => refused(offer.addr.ip()),
        // Only processes on a switch's own machine have such an address.
        (Some(_), _) if from.is_loopback() => Ok(()),
        (Some(_), None) => refused(from),
        (Some(at), Some(own)) if at != own => refused(offer.addr.ip()),
        (Some(_), Some(_)) => Ok(()),
    }
}
