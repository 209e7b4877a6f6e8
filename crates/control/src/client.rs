//! The client to whom a job is charged, and the limits of each client, so that no client takes all of a switch.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The client to whom a job is charged: the first that came to the job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    /// A client that has shown a token.
    Tenant(Arc<str>),
    /// An address, if the switch needs no tokens. For IPv6 it is the network of 64 bits, since a host has all of its
    /// addresses.
    Address(IpAddr),
}

impl Client {
    /// The client at this address.
    pub fn at(address: IpAddr) -> Client {
        Client::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 => v4,
        })
    }

    /// True if the other client may take no part in a job of this client. Without tokens the hosts of one job are many
    /// clients, so none is excluded.
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

/// The limits of one client at a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The most jobs at a time, including jobs that form.
    pub jobs: Option<u16>,
    /// Bytes for all of the client's jobs together.
    pub memory_bytes: Option<u64>,
    /// The most slots of each job.
    pub max_slots: Option<u16>,
    /// The most ranks of each job.
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
