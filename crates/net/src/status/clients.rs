//! What each client has and does at a switch, and how often it was refused: for operators who ask which of their tenants is
//! the cause. Refusals are remembered by client, in bounded memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_control::Client;
use tributary_proto::contract::time::Time;

use super::JobStatus;

/// A tenant, or an address where a switch needs no tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientStatus {
    /// The client: `tenant 'NAME'`, or an address.
    pub client: String,
    /// Its jobs, those that form included.
    pub jobs: u32,
    /// The bytes that these are charged.
    pub memory_bytes: u64,
    /// Their goodput in Gbit/s, lately.
    pub goodput_gbps: f64,
    /// Packets of their members per second, lately.
    pub packets_per_s: f64,
    /// Joins that were refused since the switch started; of an address, as long as it is remembered.
    pub refused: u64,
    /// The last of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<RefusalStatus>,
}

/// A refused join.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusalStatus {
    /// The code of the error.
    pub code: String,
    /// Seconds since the join was refused.
    pub s_ago: f64,
}

/// The most addresses whose refusals are remembered. The one whose last refusal is the oldest makes way. Tenants are those of
/// the file of tokens, so that these need no bound.
const MOST_ADDRESSES: usize = 64;

#[derive(Clone, Debug)]
struct Refused {
    count: u64,
    last: Time,
    code: String,
}

/// The refused joins of each client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals(BTreeMap<Client, Refused>);

impl Refusals {
    /// Counts a join that was refused with this code.
    pub fn count(&mut self, now: Time, client: &Client, code: &str) {
        let refused =
            self.0.entry(client.clone()).or_insert_with(|| Refused { count: 0, last: now, code: String::new() });
        (refused.count, refused.last) = (refused.count + 1, now);
        code.clone_into(&mut refused.code);
        let is_address = |client: &Client| matches!(client, Client::Address(_));
        let addresses = || self.0.iter().filter(|&(other, _)| is_address(other) && other != client);
        if is_address(client) && addresses().count() >= MOST_ADDRESSES {
            let oldest = addresses().min_by_key(|(_, refused)| refused.last).map(|(oldest, _)| oldest.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
    }

    /// How many joins of a client were refused.
    pub fn of(&self, client: &Client) -> u64 {
        self.0.get(client).map_or(0, |refused| refused.count)
    }

    /// Every client that has one of these jobs, or was refused, in the order of their names.
    pub fn with_jobs(&self, now: Time, jobs: &[JobStatus]) -> Vec<ClientStatus> {
        let mut clients: BTreeMap<String, ClientStatus> = BTreeMap::new();
        for job in jobs {
            let Some(name) = &job.client else { continue };
            let client = clients.entry(name.clone()).or_default();
            client.jobs += 1;
            client.memory_bytes += job.memory_bytes;
            client.goodput_gbps += job.goodput_gbps;
            client.packets_per_s += job.packets_per_s;
        }
        for (name, Refused { count, last, code }) in &self.0 {
            let client = clients.entry(name.to_string()).or_default();
            client.refused = *count;
            client.last_refusal = Some(RefusalStatus { code: code.clone(), s_ago: now.since(*last).as_secs_f64() });
        }
        clients.into_iter().map(|(client, status)| ClientStatus { client, ..status }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tributary_proto::contract::time::Span;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_millis(1_000 * seconds)
    }

    fn address(number: u32) -> Client {
        Client::at(Ipv4Addr::from(number).into())
    }

    #[test]
    fn refusals_of_many_addresses_push_out_the_oldest_and_no_tenant_s() {
        let (mut refusals, tenant) = (Refusals::default(), Client::Tenant("a".into()));
        refusals.count(at(0), &tenant, "over_client_limit");
        for number in 0..1_000 {
            refusals.count(at(number), &address(1 + number as u32), "full");
        }
        assert_eq!((refusals.0.len(), refusals.of(&tenant)), (1 + MOST_ADDRESSES, 1));
        assert_eq!((refusals.of(&address(1)), refusals.of(&address(1_000))), (0, 1));
        // A client that is refused again is not forgotten.
        refusals.count(at(2_000), &address(999), "full");
        (0..MOST_ADDRESSES as u32 - 1).for_each(|number| refusals.count(at(3_000), &address(5_000 + number), "full"));
        assert_eq!((refusals.of(&address(999)), refusals.of(&address(1_000))), (2, 0));
    }

    #[test]
    fn a_client_that_has_no_job_is_listed_with_the_last_refusal() {
        let mut refusals = Refusals::default();
        refusals.count(at(1), &Client::Tenant("b".into()), "full");
        refusals.count(at(4), &Client::Tenant("b".into()), "over_client_limit");
        let [client] = &refusals.with_jobs(at(10), &[])[..] else { panic!("one client") };
        assert_eq!((client.client.as_str(), client.jobs, client.refused), ("tenant 'b'", 0, 2));
        assert_eq!(client.last_refusal, Some(RefusalStatus { code: "over_client_limit".into(), s_ago: 6.0 }));
    }
}
