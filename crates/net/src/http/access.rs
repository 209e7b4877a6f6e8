//! Who may use a switch: clients with a token; without tokens, the hosts of private networks, or all hosts.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode, header};
use tributary_control::Client;
use tributary_control::config::Tokens;

use crate::api::error::ApiError;

/// Who may use a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Clients with a token may have jobs; hosts of private networks may look.
    Tokens(Tokens),
    /// Hosts at loopback, link-local and private addresses.
    #[default]
    Private,
    /// All hosts.
    Open,
}

impl Access {
    /// An error if a request from this address is refused. Paths other than joins have keys of their own, or only read.
    pub fn check(&self, from: IpAddr, headers: &HeaderMap) -> Result<(), ApiError> {
        match self {
            _ if is_private(from) => Ok(()),
            Access::Open => Ok(()),
            Access::Tokens(_) => self.client(from, headers).map(drop),
            Access::Private => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "not_private",
                format!(
                    "this switch serves loopback, link-local and private addresses, and {from} is not one: start it with \
                     --tokens FILE, or with --open if whoever reaches it may use it"
                ),
            )),
        }
    }

    /// The client that is charged for a join.
    pub fn client(&self, from: IpAddr, headers: &HeaderMap) -> Result<Client, ApiError> {
        let Access::Tokens(tokens) = self else { return Ok(Client::at(from)) };
        let refuse = |code, sentence: &str| Err(ApiError::new(StatusCode::UNAUTHORIZED, code, sentence.into()));
        let Some(header) = headers.get(header::AUTHORIZATION) else {
            return refuse(
                "no_token",
                "this switch asks for a token: set TRIBUTARY_TOKEN to the one that you were given",
            );
        };
        let token = header.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        match token.and_then(|token| tokens.tenant(token)) {
            Some(tenant) => Ok(Client::Tenant(tenant.name.clone())),
            None => refuse("wrong_token", "the token in TRIBUTARY_TOKEN is not one of this switch's: ask its operator"),
        }
    }
}

/// Loopback, link-local and private addresses (RFC 1918, RFC 3927, RFC 4193, RFC 4291).
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_private(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unique_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        headers
    }

    const PRIVATE: [&str; 8] =
        ["127.0.0.1", "10.77.0.1", "172.31.0.1", "192.168.1.1", "169.254.1.1", "::1", "fe80::1", "fd00::1"];
    const PUBLIC: [&str; 4] = ["8.8.8.8", "172.32.0.1", "2001:4860::1", "::ffff:8.8.8.8"];

    #[test]
    fn without_tokens_private_networks_are_served_and_others_only_by_an_open_switch() {
        for (address, is_private) in PRIVATE.map(|a| (a, true)).into_iter().chain(PUBLIC.map(|a| (a, false))) {
            let from: IpAddr = address.parse().unwrap();
            assert_eq!(Access::Private.check(from, &headers(None)).is_ok(), is_private, "{address}");
            assert!(Access::Open.check(from, &headers(None)).is_ok(), "{address}");
        }
    }

    #[test]
    fn with_tokens_a_join_is_its_tenant_s_wherever_it_comes_from() {
        let file = "[[tenant]]\nname = \"a\"\ntoken = \"0123456789abcdef\"\n";
        let access = Access::Tokens(Tokens::parse(file).unwrap());
        for from in PRIVATE.into_iter().chain(PUBLIC) {
            let from: IpAddr = from.parse().unwrap();
            let client = |header| access.client(from, &headers(header));
            assert_eq!(client(Some("Bearer 0123456789abcdef")), Ok(Client::Tenant("a".into())));
            for wrong in [None, Some("Bearer 0123456789abcdeF"), Some("0123456789abcdef"), Some("Basic eA==")] {
                assert!(client(wrong).is_err(), "{wrong:?}");
            }
        }
        let public: IpAddr = PUBLIC[0].parse().unwrap();
        assert!(access.check(public, &headers(None)).is_err());
        assert!(access.check(public, &headers(Some("Bearer 0123456789abcdef"))).is_ok());
    }
}
