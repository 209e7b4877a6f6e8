//! Switches that serve packets by class, against what a class may expect: a high one meets a packet that is being sent, and
//! no queue; weights are shares.

use std::collections::BTreeSet;

use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::run;
use tributary_sim::swarm::scenario;

const RATE: f64 = 10e9;
/// The time of a full packet on a link.
const PACKET_S: f64 = 1538.0 * 8.0 / RATE;

fn report(text: &str) -> Report {
    let report = run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!(report.failure(), None);
    report
}

/// Two long flows to host 3, and one flow of `bytes` there while they run, each in a class of its own if there are classes.
fn three_to_one(service: &str, bytes: u64, has_long: bool) -> Report {
    let class = |priority: u32| {
        let settings = format!("transport_settings = {{ initial_window = 12, priority = {priority} }}");
        if service.is_empty() { settings.replace(&format!(", priority = {priority}"), "") } else { settings }
    };
    let long = |from: u32| format!("{{ from = 'host {from}', to = 'host 3', bytes = '8 MB', at = '0 s' }}");
    let mut text = format!(
        "end = '1 s'\n[network]\nstar = {{ hosts = 4 }}\nrate = '10 Gbit/s'\ndelay = '1 us'\nmark_above = '100 kB'\n{service}\n\
         [[traffic]]\npattern = 'list'\n{}\nflows = [{{ from = 'host 2', to = 'host 3', bytes = {bytes}, at = '2 ms' }}]\n",
        class(1)
    );
    if has_long {
        text += &format!("[[traffic]]\npattern = 'list'\n{}\nflows = [{}, {}]\n", class(0), long(0), long(1));
    }
    report(&text)
}

/// The seconds of the flow of [`three_to_one`] that is not long.
fn seconds(report: &Report) -> f64 {
    let flows = report.transport.as_ref().unwrap();
    flows.each.first().unwrap_or(flows).classes[0].mean_seconds
}

#[test]
fn a_packet_of_a_high_class_waits_for_one_packet_at_most() {
    let strict = "service = 'strict'";
    let alone = seconds(&three_to_one(strict, 1_000, false));
    let waits = seconds(&three_to_one(strict, 1_000, true)) - alone;
    assert!((0.0..=PACKET_S).contains(&waits), "{waits}");
    // The queue that it passes is there: DCTCP's, about 65 packets.
    let in_order = seconds(&three_to_one("", 1_000, true)) - alone;
    assert!(in_order > 20.0 * PACKET_S, "{in_order}");
}

#[test]
fn a_flow_of_a_high_class_takes_as_long_as_alone() {
    let strict = "service = 'strict'";
    let alone = seconds(&three_to_one(strict, 3_000_000, false));
    let beside = seconds(&three_to_one(strict, 3_000_000, true));
    // Each of its packets may wait for one that is being sent; they wait behind each other only once.
    assert!(beside < 1.01 * alone + PACKET_S, "{beside} {alone}");
    let in_order = seconds(&three_to_one("", 3_000_000, true));
    assert!(in_order > 2.0 * alone, "{in_order} {alone}");
}

/// A class that fills its share of a buffer leaves the others theirs.
#[test]
fn a_high_class_loses_nothing_where_a_low_one_has_filled_its_share_of_a_shared_buffer() {
    let strict = "service = 'strict'\nshared_buffer = '60 kB'";
    let alone = seconds(&three_to_one(strict, 3_000_000, false));
    let beside = seconds(&three_to_one(strict, 3_000_000, true));
    assert!(beside < 1.01 * alone + PACKET_S, "{beside} {alone}");
}

#[test]
fn weights_are_shares_of_the_link() {
    let flows = |from: u32, priority: u32| {
        format!(
            "[[traffic]]\npattern = 'list'\ntransport_settings = {{ priority = {priority} }}\n\
             flows = [{{ from = 'host {from}', to = 'host 2', bytes = '8 MB' }}]\n"
        )
    };
    let text = format!(
        "end = '1 s'\n[network]\nstar = {{ hosts = 3 }}\nrate = '10 Gbit/s'\ndelay = '1 us'\nmark_above = '100 kB'\n\
         service = {{ weights = [1, 3] }}\n{}{}",
        flows(0, 0),
        flows(1, 1)
    );
    let report = report(&text);
    let each = &report.transport.as_ref().unwrap().each;
    let [low, high] = [0, 1].map(|class: usize| each[class].classes[0].mean_seconds);
    // The second has 3/4 of the link and is done after 4/3 of its time alone; the first is done when both are: after 2.
    let ratio = high / low;
    assert!((ratio - 2.0 / 3.0).abs() < 0.02, "{ratio}");
}

/// Ranks 0 and 4 reduce over the one cable between two racks, beside hosts that ask for most of it.
fn job_beside(service: &str, priority: u32, load: &str) -> String {
    let summing = protocols::ALL.iter().find(|protocol| protocol.switch.is_some()).unwrap().name;
    format!(
        "end = '1 s'\n[network]\nleaf_spine = {{ leaves = 2, spines = 1, hosts_per_leaf = 4 }}\nrate = '10 Gbit/s'\n\
         delay = '1 us'\n{service}\n[[job]]\nprotocol = '{summing}'\nhosts = [0, 4]\ntensor = '1 MiB'\niterations = 2\n\
         priority = {priority}\n[[traffic]]\npattern = 'uniform'\nmessage = '64 KiB'\nload = '{load}'\n"
    )
}

#[test]
fn a_job_of_a_high_class_sums_as_fast_as_alone() {
    let goodput = |text: String| report(&text).jobs[0].goodput_gbps.unwrap();
    let strict = "service = 'strict'";
    let alone = goodput(job_beside(strict, 1, "0 %"));
    let beside = goodput(job_beside(strict, 1, "50 %"));
    assert!(beside > 0.95 * alone, "{beside} {alone}");
    let in_order = goodput(job_beside("", 0, "50 %"));
    assert!(in_order < 0.8 * alone, "{in_order} {alone}");
}

#[test]
fn a_class_that_switches_do_not_know_is_a_sentence() {
    let refused = |service: &str, priority: u32| {
        let config = Config::parse(&job_beside(service, priority, "1 %")).unwrap();
        run(&config).unwrap_err().to_string()
    };
    assert!(refused("", 1).contains("priority = 1 needs switches with classes: set service in [network]"));
    let weights = refused("service = { weights = [1, 3] }", 2);
    assert!(weights.contains("priority = 2: the service of [network] has classes 0 to 1"), "{weights}");
    let weights = refused("service = { weights = [1] }", 0);
    assert!(weights.contains("weights are 2 to 8 numbers of 1 to 1,000"), "{weights}");
    let credits = refused("service = 'strict'\nlossless = { kind = 'credits' }", 0);
    assert!(credits.contains("channels have credits, and no classes"), "{credits}");
}

/// A swarm that never drew a class would not test it.
#[test]
fn the_swarm_draws_services_and_classes() {
    let mut drawn = BTreeSet::new();
    for config in (0..1_000).map(|seed| scenario(seed).config) {
        let Some(service) = &config.network.service else { continue };
        drawn.insert(format!("{service:?}"));
        drawn.extend(config.jobs.iter().map(|job| format!("job {}", job.priority)));
        let own = config.traffic.iter().filter_map(|pattern| pattern.transport_settings.as_ref()?.priority);
        drawn.extend(own.map(|priority| format!("flows {priority}")));
    }
    let wanted = ["Strict", "Weights([1, 1])", "Weights([1, 7])", "flows 0", "flows 1", "job 0", "job 1"];
    assert_eq!(drawn, wanted.map(String::from).into());
}
