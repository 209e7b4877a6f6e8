//! Switches that trim: a packet that finds its queue full is known to be lost after a round trip, and no timer runs out.

use std::ops::ControlFlow;

use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::swarm::{run_seed, scenario};
use tributary_sim::{run, run_on_threads};

const RATE: f64 = 10e9;
const DELAY_S: f64 = 5e-6;
/// The time of a full packet on a link, and of a header.
const PACKET_S: f64 = 1538.0 * 8.0 / RATE;
const HEADER_S: f64 = 84.0 * 8.0 / RATE;

/// All hosts but the last send to it at once, through a queue of some full packets.
fn incast(senders: u32, bytes: u32, queue: u32, switches: &str) -> Report {
    let flow = |from: u32| format!("{{ from = 'host {from}', to = 'host {senders}', bytes = {bytes} }}, ");
    let text = format!(
        "[network]\nstar = {{ hosts = {} }}\nrate = '10 Gbit/s'\ndelay = '5 us'\nqueue = {}\nservice = 'strict'\n{switches}\n\
         [[traffic]]\npattern = 'list'\nflows = [{}]\n",
        senders + 1,
        1538 * queue,
        (0..senders).map(flow).collect::<String>()
    );
    let report = run(&Config::parse(&text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

fn lost(report: &Report, cause: &str) -> u64 {
    let causes = report.links.iter().flat_map(|group| group.losses.iter());
    causes.filter(|(name, _)| *name == cause).map(|(_, count)| count).sum()
}

fn longest(report: &Report) -> f64 {
    report.flow_rows.iter().map(|row| row.seconds).fold(0.0, f64::max)
}

/// Of three packets one leaves, one waits and one is trimmed. Its header overtakes the second, the answer goes back, and the
/// packet comes again: four times a full packet, three times a header, and six delays.
#[test]
fn a_trimmed_packet_comes_again_after_a_round_trip() {
    let report = incast(3, 1460, 1, "trim = true");
    let seconds = |src: u32| report.flow_rows.iter().find(|row| row.src == src).unwrap().seconds;
    let near = |seconds: f64, expected: f64| assert!((seconds - expected).abs() < 1e-11, "{seconds} not {expected}");
    near(seconds(0), 2.0 * (PACKET_S + DELAY_S));
    near(seconds(1), 3.0 * PACKET_S + HEADER_S + 2.0 * DELAY_S);
    near(seconds(2), 4.0 * PACKET_S + 3.0 * HEADER_S + 6.0 * DELAY_S);
    assert_eq!((lost(&report, "trimmed"), lost(&report, "queue_full")), (1, 0));

    let dropped = incast(3, 1460, 1, "");
    assert_eq!((lost(&dropped, "trimmed"), lost(&dropped, "queue_full")), (0, 1));
    assert!(longest(&dropped) > 10e-3, "without its header only a timer tells: {} s", longest(&dropped));
}

/// 16 first windows meet a queue of 8 packets. Each trimmed packet is sent again once, and the link is hardly ever idle.
#[test]
fn an_incast_into_a_short_queue_has_no_timeout_and_fills_its_link() {
    let report = incast(16, 14_600, 8, "trim = true");
    let trimmed = lost(&report, "trimmed");
    assert!(trimmed > 50, "{report}");
    assert_eq!((report.transport.as_ref().unwrap().retransmissions, lost(&report, "queue_full")), (trimmed, 0));
    let headers = trimmed as f64 * HEADER_S;
    let least = 160.0 * PACKET_S + headers;
    assert!((least..1.25 * least).contains(&longest(&report)), "{} s, at least {least}", longest(&report));
    assert!(longest(&incast(16, 14_600, 8, "")) > 10e-3);
}

#[test]
fn the_trace_is_the_same_on_two_threads() {
    let text = "[network]\nleaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 4 }\nrate = '10 Gbit/s'\nqueue = '12 kB'\n\
                service = 'strict'\ntrim = true\ncut_through = true\n[[traffic]]\npattern = 'poisson'\nsizes = 'hadoop'\n\
                load = '60 %'\nuntil = '2 ms'\n";
    let config = Config::parse(text).unwrap();
    let report = run(&config).unwrap();
    assert!(lost(&report, "trimmed") > 0, "{report}");
    let threaded = run_on_threads(&config, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((threaded.trace_hash, threaded.links), (report.trace_hash, report.links));
}

#[test]
fn headers_need_a_class_that_overtakes() {
    let overtake = "trim: the headers of trimmed packets overtake data: set service";
    for (rest, sentence) in [
        ("", overtake),
        ("service = { weights = [1, 1] }", overtake),
        ("service = 'strict'\nlossless = {}", "trim: lossless switches drop nothing"),
    ] {
        let text = format!("[network]\nstar = {{ hosts = 2 }}\ntrim = true\n{rest}\n");
        let error = run(&Config::parse(&text).unwrap()).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
}

#[test]
fn the_swarm_trims() {
    let drawn: Vec<u64> = (0..500).filter(|&seed| scenario(seed).config.network.trim).take(6).collect();
    assert_eq!(drawn.len(), 6);
    for seed in drawn {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}
