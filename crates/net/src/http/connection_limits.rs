//! How many connections and bytes of bodies each client may have, by client address. So no client can take a switch's whole
//! control API, and the hosts of running jobs still have connections when others fill the rest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tributary_control::Client;

use crate::http::access::Access;

/// The most ordinary connections of all clients together: those that are not of members of running jobs.
const MAX_ORDINARY: usize = 4_096;
/// The most ordinary connections of one client. All ranks of the largest job may run on one machine.
const MAX_ORDINARY_PER_CLIENT: usize = 1_088;
/// The most connections of one client on which members of running jobs wait. Each member has one, and a second
/// one while it asks again.
const MAX_WATCHES_PER_CLIENT: usize = 2 * MAX_ORDINARY_PER_CLIENT;
/// The most bytes of long bodies that one client may be sending ...
const MAX_BODY_BYTES_PER_CLIENT: usize = 2 << 20;
/// ... and that all clients together may be sending.
const MAX_BODY_BYTES: usize = 16 << 20;

#[derive(Default)]
struct Usage {
    ordinary: usize,
    watches: usize,
    body_bytes: usize,
}

impl Usage {
    fn is_empty(&self) -> bool {
        self.ordinary + self.watches + self.body_bytes == 0
    }
}

#[derive(Default)]
struct AllUsage {
    all: Usage,
    by_client: HashMap<Client, Usage>,
}

/// The limits of one listening address.
pub struct ConnectionLimits {
    access: RwLock<Arc<Access>>,
    usage: Mutex<AllUsage>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The client has as many connections as one client may have.
    Client,
    /// There are as many connections as the switch serves.
    Switch,
}

impl Full {
    /// The sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Full::Client => "your address has as many connections to this switch as one may have: wait until one ends",
            Full::Switch => "this switch has as many connections as it serves: try again in a while",
        }
    }
}

impl ConnectionLimits {
    /// Limits for all clients that have access.
    pub fn new(access: Access) -> Arc<ConnectionLimits> {
        Arc::new(ConnectionLimits { access: RwLock::new(Arc::new(access)), usage: Mutex::default() })
    }

    /// Who may use the switch.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the rules of access.
    pub fn change_access(&self, access: Access) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    /// Accepts a connection. `has_members` is called if the answer depends on members of running jobs at the address.
    pub fn acquire(
        self: &Arc<Self>,
        from: IpAddr,
        has_members: impl FnOnce() -> bool,
    ) -> Result<ConnectionPermit, Full> {
        let client = Client::at(from);
        let mut usage = self.lock();
        let AllUsage { all, by_client } = &mut *usage;
        let own = by_client.entry(client.clone()).or_default();
        if own.ordinary >= MAX_ORDINARY_PER_CLIENT {
            return Err(Full::Client);
        }
        if all.ordinary >= MAX_ORDINARY && !has_members() {
            if own.is_empty() {
                by_client.remove(&client);
            }
            return Err(Full::Switch);
        }
        (own.ordinary, all.ordinary) = (own.ordinary + 1, all.ordinary + 1);
        drop(usage);
        Ok(ConnectionPermit { limits: Arc::clone(self), client, watches: Mutex::new(false) })
    }

    /// The number of connections.
    pub fn connections(&self) -> usize {
        let all = &self.lock().all;
        all.ordinary + all.watches
    }

    fn lock(&self) -> MutexGuard<'_, AllUsage> {
        self.usage.lock().expect("no call panics while it holds the usage")
    }

    fn change(&self, client: &Client, change: impl Fn(&mut Usage)) {
        let mut usage = self.lock();
        change(&mut usage.all);
        let own = usage.by_client.entry(client.clone()).or_default();
        change(own);
        if own.is_empty() {
            usage.by_client.remove(client);
        }
    }
}

/// A connection that was accepted. Dropping it frees its share of the limits.
pub struct ConnectionPermit {
    limits: Arc<ConnectionLimits>,
    client: Client,
    watches: Mutex<bool>,
}

impl ConnectionPermit {
    /// Who may use the switch.
    pub fn access(&self) -> Arc<Access> {
        self.limits.access()
    }

    /// Notes that the connection belongs to a member of a running job, so that it no longer takes a guest's usage. False
    /// if the client has too many such connections already.
    pub fn mark_as_watch(&self) -> bool {
        let mut watches = self.watches.lock().expect("nobody panics while it holds this");
        if *watches {
            return true;
        }
        let has = self.limits.lock().by_client.get(&self.client).map_or(0, |own| own.watches);
        if has >= MAX_WATCHES_PER_CLIENT {
            return false;
        }
        self.limits
            .change(&self.client, |usage| (usage.ordinary, usage.watches) = (usage.ordinary - 1, usage.watches + 1));
        *watches = true;
        true
    }

    /// Accounts for a long body. `None` if this client, or all clients together, are sending too much already.
    pub fn body(&self, bytes: usize) -> Option<BodyPermit<'_>> {
        {
            let usage = self.limits.lock();
            let own = usage.by_client.get(&self.client).map_or(0, |own| own.body_bytes);
            if own + bytes > MAX_BODY_BYTES_PER_CLIENT || usage.all.body_bytes + bytes > MAX_BODY_BYTES {
                return None;
            }
        }
        self.limits.change(&self.client, |usage| usage.body_bytes += bytes);
        Some(BodyPermit { permit: self, bytes })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let watches = *self.watches.lock().expect("nobody panics while it holds this");
        self.limits.change(&self.client, |usage| match watches {
            true => usage.watches -= 1,
            false => usage.ordinary -= 1,
        });
    }
}

/// The bytes of a body while it is received.
pub struct BodyPermit<'a> {
    permit: &'a ConnectionPermit,
    bytes: usize,
}

impl Drop for BodyPermit<'_> {
    fn drop(&mut self) {
        self.permit.limits.change(&self.permit.client, |usage| usage.body_bytes -= self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
    }

    #[test]
    fn one_client_and_all_together_are_bounded_but_never_members() {
        let limits = ConnectionLimits::new(Access::default());
        let mut inside = Vec::new();
        for _ in 0..MAX_ORDINARY_PER_CLIENT {
            inside.push(limits.acquire(host(0), || false).unwrap());
        }
        assert_eq!(limits.acquire(host(0), || true).err(), Some(Full::Client));
        let mut other = 1;
        while limits.connections() < MAX_ORDINARY {
            inside.push(limits.acquire(host(other), || false).unwrap());
            other += 1;
        }
        assert_eq!(limits.acquire(host(9_999), || false).err(), Some(Full::Switch));
        inside.push(limits.acquire(host(9_999), || true).unwrap());
        drop(inside);
        let usage = limits.lock();
        assert!(usage.by_client.is_empty() && usage.all.is_empty());
    }

    #[test]
    fn watches_of_members_are_bounded_for_each_client() {
        let limits = ConnectionLimits::new(Access::default());
        let acquire = || limits.acquire(host(0), || false).unwrap();
        let watches: Vec<ConnectionPermit> =
            (0..MAX_WATCHES_PER_CLIENT).map(|_| acquire()).inspect(|permit| assert!(permit.mark_as_watch())).collect();
        let one_more = acquire();
        assert!(!one_more.mark_as_watch());
        drop((watches, one_more));
        assert_eq!(limits.connections(), 0);
    }

    #[test]
    fn bodies_take_bounded_memory() {
        let limits = ConnectionLimits::new(Access::default());
        let permits: Vec<ConnectionPermit> =
            (0..20).map(|number| limits.acquire(host(number), || false).unwrap()).collect();
        let first = (permits[0].body(MAX_BODY_BYTES_PER_CLIENT).unwrap(), permits[0].body(1).is_none());
        assert!(first.1);
        let others: Vec<_> = permits[1..].iter().filter_map(|permit| permit.body(MAX_BODY_BYTES_PER_CLIENT)).collect();
        assert_eq!(others.len(), MAX_BODY_BYTES / MAX_BODY_BYTES_PER_CLIENT - 1);
        drop((first, others));
        assert!(permits[19].body(MAX_BODY_BYTES_PER_CLIENT).is_some());
    }
}
