//! The control API for servers.

use std::net::SocketAddr;
use std::time::Duration;

use super::{BRIEF, Client, ClientError};
use crate::api::{Done, OfferBody, OfferReply, RetireBody};
use crate::token::Token;

/// Time for the answer to an offer. The switch gives it within a part of its lease, which is a day at most.
const OFFER: Duration = Duration::from_secs(86_400);

/// The switch, as a server knows it. All calls block.
pub(crate) struct ServerClient {
    client: Client,
    switch: SocketAddr,
}

impl ServerClient {
    /// The switch whose control API is at this address. Calls show it the token.
    pub fn new(switch: SocketAddr, token: Option<Token>) -> ServerClient {
        ServerClient { client: Client::new(switch, token), switch }
    }

    /// The address of its control API.
    pub fn switch(&self) -> SocketAddr {
        self.switch
    }

    /// Offers the server. Returns the server's jobs when they differ from those that it knows of, or after a while.
    pub fn offer(&self, body: &OfferBody) -> Result<OfferReply, ClientError> {
        self.client.post("/servers/watch", body, OFFER)
    }

    /// Reports that the server ends.
    pub fn retire(&self, incarnation: String) -> Result<(), ClientError> {
        self.client.post::<Done>("/servers/leave", &RetireBody { incarnation }, BRIEF).map(|Done {}| ())
    }
}
