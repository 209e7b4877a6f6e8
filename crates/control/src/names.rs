//! Names: those of jobs, which stand in URLs, metrics and log lines, and those of the clients that are charged for jobs.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The text is not a name, since it would need quoting. It is shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' cannot be a job's name: take 1 to 128 ASCII letters, digits and -_.:@+=")]
pub struct BadName(pub String);

/// A job's name: 1 to 128 ASCII letters, digits and `-_.:@+=`, so that it needs no quoting in a URL or a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName(String);

impl JobName {
    /// The longest name in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks a name.
    pub fn new(name: &str) -> Result<JobName, BadName> {
        let fits = (1..=JobName::MAX_LEN).contains(&name.len());
        if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:@+=".contains(&byte)) {
            Ok(JobName(name.to_owned()))
        } else {
            Err(BadName(name.chars().take(JobName::MAX_LEN).collect()))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the name fits a pattern in which `*` stands for any characters, none included.
    pub fn matches(&self, pattern: &str) -> bool {
        let mut texts = pattern.split('*');
        let first = texts.next().unwrap_or_default();
        let Some(mut rest) = self.0.strip_prefix(first) else { return false };
        let mut texts = texts.peekable();
        if texts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(text) = texts.next() {
            if texts.peek().is_none() {
                return rest.ends_with(text);
            }
            // The leftmost match leaves the most for the texts that follow.
            let Some(at) = rest.find(text) else { return false };
            rest = &rest[at + text.len()..];
        }
        true
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The client that is charged for a job: the first that came to the job.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_needs_no_quoting_anywhere() {
        for good in ["a", "team-a.run_7", "x:0", &"n".repeat(128)] {
            assert!(JobName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "ü", "a\n", "a\"", &"n".repeat(129)] {
            assert!(JobName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        let cases = [
            ("*", true),
            ("team-a", false),
            ("team-a*", true),
            ("team-a-7", true),
            ("*-7", true),
            ("*-8", false),
            ("team*a*7", true),
            ("team*b*7", false),
            ("team-a-7*", true),
            ("team-a-7*7", false),
            ("", false),
        ];
        let name = JobName::new("team-a-7").unwrap();
        for (pattern, fits) in cases {
            assert_eq!(name.matches(pattern), fits, "{pattern}");
        }
    }

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
