//! Servers that offer themselves to a fabric's jobs, at the seat. Other switches pass their offers on, as they do with what
//! workers ask.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use tributary_control::Client;
use tributary_control::fabric::FabricLayout;
use tributary_control::servers::ServerOffer;

use super::places;
use super::routes::{Place, sender};
use crate::api::error::ApiError;
use crate::api::{OfferBody, OfferReply, ServedBody};
use crate::http::body::read;
use crate::http::door::Visit;
use crate::http::{Held, Peer};

/// Takes the offer of a server; answered when its jobs are no longer those that it knows of.
pub async fn serve(
    State(place): State<Place>,
    Extension(peer): Extension<Peer>,
    Extension(held): Extension<Held>,
    Extension(visit): Extension<Arc<Visit>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<OfferReply>, ApiError> {
    let from = sender(&place, &headers, peer)?;
    let body: OfferBody = read(body).await?;
    let offer = body.offer(from, Client::at(from))?;
    may_serve(&place.fabric, &offer, from)?;
    let plane = &place.api.plane;
    if plane.with_control(|control| !control.served_by(offer.incarnation).is_empty()) {
        // Running jobs need it: it takes no room of guests. Where its client has too many such, it stays a guest.
        let _ = visit.becomes_watch();
    }
    let (changes, served, open) = plane.serve(offer, body.known).await?;
    held.keep(open);
    let jobs = served.iter().filter_map(|(plan, server)| {
        let fabric = Some(places::told_server(&place.fabric, plan, *server)?);
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
            "this fabric takes servers from the hosts that its file names (servers = [...]: {hosts}), and {at} is none of them: \
             name the host there, in the file of every switch"
        );
        Err(ApiError::new(StatusCode::FORBIDDEN, "not_a_server", error))
    };
    match (host_of(offer.addr.ip()), host_of(from)) {
        (None, _) => refused(offer.addr.ip()),
        // Nobody but processes of a switch's own machine has such an address.
        (Some(_), _) if from.is_loopback() => Ok(()),
        (Some(_), None) => refused(from),
        (Some(at), Some(own)) if at != own => refused(offer.addr.ip()),
        (Some(_), Some(_)) => Ok(()),
    }
}
