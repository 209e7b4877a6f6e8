//! Who may use a switch: clients with a token; without tenants, the hosts of private networks, or all hosts. And who may
//! act on it: operators with a token.

use std::net::IpAddr;

use axum::http::{HeaderMap, StatusCode, header};
use tributary_control::Client;
use tributary_control::config::Tokens;

use crate::api::error::ApiError;

/// Who may use a switch, and who may act on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Where there are tenants, they alone may have jobs; hosts of private networks may look.
    tokens: Tokens,
    /// Without tenants: all hosts may use the switch, and not only those at loopback, link-local and private addresses.
    open: bool,
}

impl Access {
    /// Access for those who have one of these tokens; without tenants, by address.
    pub fn new(tokens: Tokens, open: bool) -> Access {
        Access { tokens, open }
    }

    /// True if there are tenants.
    pub fn asks_for_tokens(&self) -> bool {
        !self.tokens.tenants().is_empty()
    }

    /// An error if a request from this address is refused. Paths other than joins have keys of their own, or only read.
    pub fn check(&self, from: IpAddr, headers: &HeaderMap) -> Result<(), ApiError> {
        if is_private(from) || self.operator(headers).is_ok() {
            return Ok(());
        }
        match (self.asks_for_tokens(), self.open) {
            (true, _) => self.client(from, headers).map(drop),
            (false, true) => Ok(()),
            (false, false) => Err(ApiError::new(
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
        if !self.asks_for_tokens() {
            return Ok(Client::at(from));
        }
        if !headers.contains_key(header::AUTHORIZATION) {
            let error = "this switch asks for a token: set TRIBUTARY_TOKEN to the one that you were given";
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, "no_token", error.into()));
        }
        match bearer(headers).and_then(|token| self.tokens.tenant(token)) {
            Some(tenant) => Ok(Client::Tenant(tenant.name.clone())),
            None => {
                let error = "the token in TRIBUTARY_TOKEN is not one of this switch's: ask its operator";
                Err(ApiError::new(StatusCode::UNAUTHORIZED, "wrong_token", error.into()))
            }
        }
    }

    /// The client that an operator names: a tenant, where there are tenants, or an address.
    pub fn client_named(&self, name: &str) -> Result<Client, ApiError> {
        if self.tokens.tenants().iter().any(|tenant| *tenant.name == *name) {
            return Ok(Client::Tenant(name.into()));
        }
        let unknown = || {
            let name: String = name.chars().take(64).collect();
            ApiError::bad_request(format!("'{name}' is neither a tenant of this switch nor an address"))
        };
        name.parse().map(Client::at).map_err(|_| unknown())
    }

    /// The name of the operator whose token a request has.
    pub fn operator(&self, headers: &HeaderMap) -> Result<&str, ApiError> {
        bearer(headers).and_then(|token| self.tokens.operator(token)).ok_or_else(|| {
            let error = "only an operator of this switch may do that: set TRIBUTARY_TOKEN to the token of an [[operator]] in \
                         its file (tributary switch --tokens FILE)";
            ApiError::new(StatusCode::UNAUTHORIZED, "not_an_operator", error.into())
        })
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
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
            assert_eq!(Access::default().check(from, &headers(None)).is_ok(), is_private, "{address}");
            assert!(Access::new(Tokens::default(), true).check(from, &headers(None)).is_ok(), "{address}");
        }
    }

    #[test]
    fn with_tokens_a_join_is_its_tenant_s_wherever_it_comes_from() {
        let file = "[[tenant]]\nname = \"a\"\ntoken = \"0123456789abcdef\"\n";
        let access = Access::new(Tokens::parse(file).unwrap(), false);
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

    #[test]
    fn an_operator_may_act_from_everywhere_and_nobody_else_may() {
        let file = "[[operator]]\nname = \"ops\"\ntoken = \"0123456789abcdef\"\n";
        let access = Access::new(Tokens::parse(file).unwrap(), false);
        let public: IpAddr = PUBLIC[0].parse().unwrap();
        let ours = headers(Some("Bearer 0123456789abcdef"));
        assert_eq!(access.operator(&ours), Ok("ops"));
        assert!(access.check(public, &ours).is_ok() && access.check(public, &headers(None)).is_err());
        for wrong in [None, Some("Bearer 0123456789abcdeF")] {
            assert!(access.operator(&headers(wrong)).is_err() && Access::default().operator(&ours).is_err());
        }
        assert_eq!(
            access.client(public, &ours),
            Ok(Client::at(public)),
            "without tenants nobody needs a token to join"
        );
        assert_eq!(access.client_named("8.8.8.8"), Ok(Client::at(public)));
        assert!(access.client_named("nobody").is_err());
    }
}
