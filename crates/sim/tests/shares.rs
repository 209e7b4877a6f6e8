//! Sums that ranks' own hosts and servers make together, in planned shares: the simulation against the plan.

use tributary_control::aggregation_plan::{AggregationPlan, HostLink};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::run;

const WORKERS: usize = 4;
const ELEMENTS: u64 = 360;
const TENSOR: u64 = 25_000_000;
const RATE: f64 = 1e9;

/// One whose sums servers make.
fn protocol() -> &'static Protocol {
    protocols::ALL.iter().find(|protocol| protocol.server.is_some()).unwrap()
}

/// Four workers with links of 1 Gbit/s and servers on links of these times that, around one switch.
fn simulated(servers: &[f64], more: &str) -> Result<Report, String> {
    let links = std::iter::repeat_n(1.0, WORKERS).chain(servers.iter().copied()).enumerate();
    let links: String = links
        .map(|(host, link)| format!("{{ between = ['host {host}', 'switch 0'], rate = '{} Mbit/s' }},", link * 1e3))
        .collect();
    let hosts = WORKERS + servers.len();
    let file = format!(
        "[network]\ngraph = {{ hosts = {hosts}, switches = 1, link = [{links}] }}\nqueue = '4 MiB'\n[[job]]\nprotocol = '{}'\n\
         hosts = {WORKERS}\nplacement = 'packed'\ntensor = {TENSOR}\nelements_per_packet = {ELEMENTS}\n{more}",
        protocol().name
    );
    let report = run(&Config::parse(&file).map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
    assert_eq!(report.failure(), None, "{file}");
    Ok(report)
}

/// What the plan promises, with each packet's header and Ethernet's, IP's and UDP's 66 bytes.
fn planned(servers: &[f64]) -> f64 {
    let hosts = std::iter::repeat_n(HostLink::new(RATE, 1), WORKERS);
    let hosts: Vec<HostLink> = hosts.chain(servers.iter().map(|link| HostLink::new(link * RATE, 0))).collect();
    let header = protocol().header_len as f64;
    let payload = 4.0 * ELEMENTS as f64;
    AggregationPlan::new(&hosts).unwrap().seconds_per_bit() * 8.0 * TENSOR as f64 * (payload + header + 66.0) / payload
}

#[test]
fn simulated_sums_take_the_time_of_the_plan() {
    // No spare host, one and four with equal links, one on twice a worker's link, and one whose link carries everything.
    for servers in [&[][..], &[1.0], &[1.0; 4], &[2.0], &[4.0]] {
        let shares = if servers.is_empty() { "" } else { "servers = 'rest'\nshares = 'planned'" };
        let report = simulated(servers, shares).unwrap();
        let ours = report.jobs.iter().map(|job| job.seconds.unwrap()).fold(0.0, f64::max);
        let expected = planned(servers);
        assert!((ours / expected - 1.0).abs() < 0.05, "{servers:?}: {ours} s, expected {expected} s");
    }
}

#[test]
fn each_way_to_sum_is_a_job_of_the_report() {
    let names = |servers: &[f64]| {
        let report = simulated(servers, "servers = 'rest'\nshares = 'planned'").unwrap();
        report.jobs.iter().map(|job| job.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&[1.0]), ["job 0: at host 4", "job 0: at its ranks' hosts"]);
    assert_eq!(names(&[4.0]), ["job 0: at host 4"]);
    // A server on a slow link sums nothing.
    assert_eq!(names(&[1.0, 0.001]), ["job 0: at host 4", "job 0: at its ranks' hosts"]);
}

#[test]
fn shares_that_nobody_can_plan_are_refused_with_a_sentence() {
    for (more, why) in [
        ("shares = 'planned'", "needs servers on hosts of their own"),
        ("servers = 'colocated'\nshares = 'planned'", "needs servers on hosts of their own"),
        ("servers = 'rest'\nshares = 'equal'", "unknown variant `equal`"),
    ] {
        let error = simulated(&[1.0], more).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
