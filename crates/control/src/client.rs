//! Whom a job is charged to, and what each may have: so that nobody takes all that a switch has.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Whom a job is charged to: the one who came first to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    /// Somebody who has shown a token.
    Tenant(Arc<str>),
    /// An address, where nobody needs a token. Of IPv6 it is the network of 64 bits, of which a host has all addresses.
    Address(IpAddr),
}

impl Client {
    /// Whoever comes from this address.
    pub fn at(address: IpAddr) -> Client {
        Client::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }

    /// True if a job of this client is none of the other's business. Where there are no tokens, the hosts of a job are many.
    pub(crate) fn excludes(&self, other: &Client) -> bool {
        match (self, other) {
            (Client::Tenant(own), Client::Tenant(other)) => own != other,
            (Client::Address(_), Client::Address(_)) => false,
            _ => true,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Client::Tenant(name) => write!(f, "tenant '{name}'"),
            Client::Address(address) => write!(f, "{address}"),
        }
    }
}

/// What one client may have of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Jobs at a time, those that form included.
    pub jobs: Option<u16>,
    /// Bytes for all of its jobs together.
    pub memory_bytes: Option<u64>,
    /// Most slots of each job.
    pub max_slots: Option<u16>,
    /// Most ranks of each job.
    pub max_world: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_many_addresses_is_one_client() {
        let at = |text: &str| Client::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.2"), at("10.0.0.1"));
    }

    #[test]
    fn a_tenant_s_job_is_its_own_and_hosts_without_tokens_meet_in_one() {
        let tenant = |name: &str| Client::Tenant(name.into());
        assert!(tenant("a").excludes(&tenant("b")));
        assert!(!tenant("a").excludes(&tenant("a")));
        let (one, other) = (Client::at([10, 0, 0, 1].into()), Client::at([10, 0, 0, 2].into()));
        assert!(!one.excludes(&other));
    }
}
