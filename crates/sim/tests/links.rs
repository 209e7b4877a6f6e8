//! Links of any speed: hosts measure how many blocks a path needs, so that one pool serves them all, and packets that only
//! queue are not sent again (SwitchML, appendix C). Timers are those of real hosts.

use tributary_proto::contract::options::OptionSet;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::experiment;
use tributary_sim::report::JobReport;

/// Of a frame of 1,400 + 32 bytes and the 66 around it, so much is tensor.
const SHARE: f64 = 1400.0 / 1498.0;

/// What a job of a run had: the Mbit/s that its tensor took, and the share of its packets that was sent again.
#[derive(Debug)]
struct Had {
    mbit: f64,
    again: f64,
}

/// The protocols whose hosts measure how many slots they use, and whose switches sum.
fn measuring() -> impl Iterator<Item = &'static str> {
    let measures =
        |set: &OptionSet| set.specs.iter().any(|spec| (spec.name, spec.default) == ("congestion_control", "measured"));
    let in_switches = protocols::ALL.iter().filter(|protocol| protocol.server.is_none());
    in_switches.filter(move |protocol| measures(&protocol.options)).map(|protocol| protocol.name)
}

/// A job as real hosts form it; `more` are further keys of its table.
fn job(protocol: &str, hosts: &[u32], megabytes: u32, slots: u32, window: &str, more: &str) -> String {
    format!(
        "[[job]]
        protocol = '{protocol}'
        hosts = {hosts:?}
        tensor = '{megabytes} MB'
        iterations = 3
        elements_per_packet = 350
        slots = {slots}
        options = {{ congestion_control = '{window}' }}
        timeout = '200 s'
        {more}
        "
    )
}

/// What [`TimerConfig`](tributary_proto::contract::config::TimerConfig) has for ordinary hosts, on a short path.
const TIMERS: &str = "rto = { initial = '20 ms', min = '1 ms', max = '200 ms' }";

fn run(network: &str, jobs: &str) -> Vec<Had> {
    let had = |job: &JobReport| {
        assert!(job.complete, "{:?}", job.errors);
        let again = job.retransmissions as f64 / job.packets_sent as f64;
        Had { mbit: job.goodput_gbps.unwrap() * 1e3, again }
    };
    let config = Config::parse(&format!("end = '400 s'\n{network}\n{jobs}")).unwrap();
    experiment::run(&config).unwrap().jobs.iter().map(had).collect()
}

fn star(hosts: u32, rate: &str, delay: &str) -> String {
    format!("[network]\nstar = {{ hosts = {hosts} }}\nrate = '{rate}'\ndelay = '{delay}'\nqueue = '4 MiB'")
}

const RATES: [(&str, f64); 5] =
    [("100 Mbit/s", 100.0), ("200 Mbit/s", 200.0), ("1 Gbit/s", 1e3), ("2.5 Gbit/s", 2.5e3), ("10 Gbit/s", 1e4)];

#[test]
fn a_pool_of_512_slots_fills_links_of_any_speed_and_sends_nothing_again_that_only_queues() {
    for protocol in measuring() {
        for (rate, mbit) in RATES {
            for hosts in [2, 4, 8] {
                let ranks: Vec<u32> = (0..hosts).collect();
                let had = run(&star(hosts, rate, "5 us"), &job(protocol, &ranks, 4, 512, "measured", TIMERS));
                assert!(had[0].mbit > 0.93 * SHARE * mbit && had[0].again < 0.01, "{hosts} hosts, {rate}: {had:?}");
            }
        }
    }
}

#[test]
fn two_jobs_on_the_same_links_share_them() {
    for protocol in measuring() {
        for (rate, mbit) in RATES {
            let ranks = [0, 1, 2, 3];
            let one = job(protocol, &ranks, 4, 512, "measured", TIMERS);
            let shared = |job: String| job.replace("hosts =", "placement = 'shared'\nhosts =");
            let had = run(&star(4, rate, "5 us"), &(shared(one.clone()) + &shared(one)));
            let sum = had[0].mbit + had[1].mbit;
            assert!(sum > 0.93 * SHARE * mbit && had.iter().all(|had| had.again < 0.01), "{rate}: {had:?}");
        }
    }
}

#[test]
fn a_slow_host_sets_the_pace_of_fast_ones() {
    for protocol in measuring() {
        let slow = "[[fault]]\nat = '0 s'\nuntil = '400 s'\nlinks = [['host 0', 'switch 0']]\nrate = '50 Mbit/s'";
        for (rate, _) in RATES {
            let had = run(&star(4, rate, "5 us"), &(job(protocol, &[0, 1, 2, 3], 2, 512, "measured", TIMERS) + slow));
            assert!(had[0].mbit > 0.93 * SHARE * 50.0 && had[0].again < 0.01, "{rate}: {had:?}");
        }
    }
}

/// Drivers ask for a pool of two round trips, and wait for four before they send anything again.
#[test]
fn a_link_with_20_ms_of_delay_is_filled_once_its_round_trip_is_known() {
    for protocol in measuring() {
        let timers = "rto = { initial = '160 ms', min = '1 ms', max = '640 ms' }";
        for (rate, mbit, megabytes) in [("100 Mbit/s", 100.0, 20), ("1 Gbit/s", 1e3, 100)] {
            let had = run(&star(2, rate, "20 ms"), &job(protocol, &[0, 1], megabytes, 16_384, "measured", timers));
            assert!(had[0].mbit > 0.93 * SHARE * mbit && had[0].again < 0.01, "{rate}: {had:?}");
        }
    }
}

/// Four jobs with a rank on each side of one cable, whose queue holds 8 ms of it. Whole pools are 6 MB together. Something is
/// lost with windows too: the job that ends last has measured the cable as its own, and begins its next collective so.
#[test]
fn jobs_with_large_pools_share_a_queue_without_filling_it() {
    for protocol in measuring() {
        let network = "[network]
        dumbbell = { left = 4, right = 4 }
        rate = '10 Gbit/s'
        [network.core]
        rate = '1 Gbit/s'
        queue = '1 MB'";
        let jobs =
            |window| (0..4).map(|pair| job(protocol, &[pair, pair + 4], 4, 1024, window, TIMERS)).collect::<String>();
        let worst = |had: Vec<Had>| had.iter().map(|had| had.again).fold(0.0, f64::max);
        let (measured, pools) = (worst(run(network, &jobs("measured"))), worst(run(network, &jobs("fixed"))));
        assert!(measured < 0.05 && pools > 0.3, "sent again: {measured}, with whole pools {pools}");
    }
}

/// What was lost waits for timers, not in a queue: it takes nothing of the window.
#[test]
fn lost_blocks_do_not_take_the_window_of_others() {
    for protocol in measuring() {
        let loss = "[[fault]]\nat = '0 s'\nuntil = '400 s'\nlinks = 'all'\nloss = '5 %'";
        let of_pool = |delay| {
            let mbit = |window| {
                run(&star(4, "1 Gbit/s", delay), &(job(protocol, &[0, 1, 2, 3], 8, 512, window, TIMERS) + loss))[0].mbit
            };
            f64::ln(mbit("measured") / mbit("fixed"))
        };
        let shares = ["5 us", "50 us", "200 us"].map(of_pool);
        let mean = f64::exp(shares.iter().sum::<f64>() / 3.0);
        assert!(mean > 0.75, "{mean} of the goodput with the whole pool");
    }
}

/// Host protocols have a reliable link for each pair of ranks. Timeouts begin with 20 ms and end with 200; the longest
/// round trips take 20 and 400. Nothing is lost, so what is sent again is what timeouts got wrong before they knew the path.
#[test]
fn links_between_hosts_send_nothing_again_for_nothing_on_paths_of_any_length() {
    let by_themselves =
        protocols::ALL.iter().filter(|protocol| !protocol.sums_in_network() && protocol.server.is_none());
    let names: Vec<&str> = by_themselves.map(|protocol| protocol.name).collect();
    assert!(!names.is_empty());
    for protocol in names {
        for delay in ["5 us", "1 ms", "5 ms", "100 ms"] {
            let job = job(protocol, &[0, 1, 2, 3, 4, 5, 6, 7], 16, 512, "measured", TIMERS);
            let had =
                run(&star(8, "1 Gbit/s", delay), &job.replace("options = { congestion_control = 'measured' }", ""));
            assert!(had[0].mbit > 10.0 && had[0].again < 0.005, "{protocol}, {delay}: {had:?}");
        }
    }
}
