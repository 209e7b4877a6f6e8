//! Canary on simulated fabrics: every sum is proven, at any array size and any timeout, and switches hold nothing after.

use tributary_proto::contract::time::{Span, Time};
use tributary_sim::config::Config;
use tributary_sim::engine::Simulation;
use tributary_sim::experiment::build;

/// A leaf-spine fabric with a job on all of its hosts.
fn file(shape: &str, switches: &str, job: &str, rest: &str) -> String {
    format!(
        "end = \"5 s\"\n[network]\nleaf_spine = {shape}\nrate = \"100 Gbit/s\"\ndelay = \"300 ns\"\n\
         routing = \"default_unless_half_full\"\n[switches.canary]\nlease = \"1 ms\"\n{switches}\n[[job]]\n\
         protocol = \"canary\"\nhosts = \"all\"\nrto = {{ initial = \"200 us\", min = \"100 us\", max = \"5 ms\" }}\n\
         {job}\n{rest}\n"
    )
}

/// A wait that is the same for all blocks.
fn fixed(timeout: &str) -> String {
    format!("timeout = \"{timeout}\"")
}

/// A wait that follows what switches see.
fn adaptive(least: &str, most: &str) -> String {
    format!("adaptive = true\nleast_timeout = \"{least}\"\ntimeout = \"{most}\"")
}

const SMALL: &str = "{ leaves = 4, spines = 4, hosts_per_leaf = 4 }";

/// Runs a file to its end; every sum must be right, and once all leases are over no slot may be in use.
fn run(text: &str) -> Simulation {
    let config = Config::parse(text).unwrap();
    let mut sim = build(&config).unwrap();
    assert!(sim.run_until_finished(Time::ZERO + config.end.0), "not finished\n{text}");
    for job in sim.traffic.jobs.all() {
        assert!(job.is_complete() && job.errors.is_empty(), "{:?}\n{text}", job.errors);
    }
    sim.run(sim.fabric.now + Span::from_millis(20));
    for (switch, shared) in sim.shared() {
        assert_eq!(shared.slots_in_use, 0, "switch {switch}\n{text}");
    }
    sim
}

fn sent_again(sim: &Simulation) -> u64 {
    sim.traffic.endpoints.iter().map(|endpoint| endpoint.machine.stats().retransmissions).sum()
}

#[test]
fn a_leaf_spine_sums_near_line_rate_and_sends_nothing_twice() {
    let sim = run(&file(SMALL, "", "tensor = \"2 MiB\"\ntype = \"i32\"", ""));
    assert_eq!(sent_again(&sim), 0);
    let job = &sim.traffic.jobs.all()[0];
    let seconds = job.iterations[0].end.unwrap().as_secs_f64();
    let goodput = 2.0 * 8.0 * 1.048576e-3 / seconds;
    // 1,024 of 1,146 bytes are values, and 16 of 17 packets that a host gets are sums.
    let bound = 100.0 * 1024.0 / 1146.0 * 16.0 / 17.0;
    assert!(goodput > 0.95 * bound && goodput <= bound, "{goodput} of {bound} Gbit/s");
}

#[test]
fn every_array_every_timeout_and_every_type() {
    for descriptors in [1, 2, 5, 64, 32_768] {
        for timeout in [fixed("0 ps"), fixed("1 us"), fixed("50 us"), adaptive("100 ns", "5 us")] {
            for dtype in ["f32", "f16", "i32"] {
                let switches = format!("descriptors = {descriptors}\n{timeout}");
                let job = format!("tensor = \"64 KiB\"\ntype = \"{dtype}\"\niterations = 3\nslots = 32");
                run(&file(SMALL, &switches, &job, ""));
            }
        }
    }
}

#[test]
fn losses_doubles_and_strays_change_nothing() {
    for seed in 1..=4 {
        let faults = "[[fault]]\nlinks = \"all\"\nloss = \"0.5 %\"\nduplication = \"0.5 %\"\nreordering = \"2 %\"\ndelay = \"5 us\"";
        let text = file(SMALL, "descriptors = 40", "tensor = \"256 KiB\"\niterations = 2", faults);
        run(&format!("seed = {seed}\n{text}"));
    }
}

#[test]
fn switches_that_die_and_come_back_cost_only_their_own_state() {
    for switch in [0, 3, 4, 7] {
        let faults = format!("[[fault]]\nat = \"30 us\"\nuntil = \"2 ms\"\ndead = \"switch {switch}\"");
        let sim = run(&file(SMALL, "", "tensor = \"1 MiB\"\ntype = \"i32\"\nslots = 64", &faults));
        let reissues: u64 = sim.traffic.endpoints.iter().map(|endpoint| endpoint.machine.stats().reissues).sum();
        // A window, issued again a few times while the switch is dead.
        assert!(reissues <= 64 * 4, "{reissues} of 1024 blocks");
    }
}

#[test]
fn many_applications_share_the_switches() {
    let jobs: String = (0..6)
        .map(|job| {
            let protocol = ["canary", "switchml", "ring"][job % 3];
            format!("[[job]]\nprotocol = \"{protocol}\"\nhosts = \"all\"\ntensor = \"100 KiB\"\niterations = 2\n")
        })
        .collect();
    for partitions in [1, 4] {
        let switches = format!("partitions = {partitions}\ndescriptors = 256");
        run(&file(SMALL, &switches, "tensor = \"200 KiB\"\niterations = 2\nslots = 64", &jobs));
    }
}

/// The regression behind collecting stragglers: on a long way hosts next to a root are early by more than the timeout.
#[test]
fn early_birds_do_not_undo_the_sums_of_a_large_fabric() {
    let shape = "{ leaves = 32, spines = 32, hosts_per_leaf = 32 }\nswitch_latency = \"300 ns\"\nqueue = \"256 KiB\"";
    let text = file(shape, "", "tensor = \"512 KiB\"\ntype = \"i32\"\nslots = 256", "");
    let sim = run(&text.replace("hosts = \"all\"", "hosts = 128"));
    assert_eq!(sent_again(&sim), 0);
    let seconds = sim.traffic.jobs.all()[0].iterations[0].end.unwrap().as_secs_f64();
    let goodput = 0.5 * 8.0 * 1.048576e-3 / seconds;
    assert!(goodput > 60.0, "{goodput} Gbit/s");
}

/// §3.2.2: a job occupies b (2d(l + t) + r) bytes of a switch that it crosses, one descriptor for each packet of that.
#[test]
fn the_peak_of_descriptors_stays_within_the_model() {
    let shape = "{ leaves = 8, spines = 8, hosts_per_leaf = 4 }";
    let noise = "probability = \"10 %\"\ndelay = \"1 us\"\nholds = \"packet\"";
    for (timeout, longest_us) in [(fixed("1 us"), 1.0), (fixed("4 us"), 4.0), (adaptive("200 ns", "8 us"), 8.0)] {
        for noise in [None, Some(noise)] {
            let rest = noise.map_or(String::new(), |noise| format!("[network.noise]\n{noise}"));
            let sim = run(&file(shape, &timeout, "tensor = \"2 MiB\"\ntype = \"i32\"\nslots = 1024", &rest));
            // d: host, leaf, spine, leaf, host. l: the cable, a packet's own time, and what noise adds; r: the leader's
            // NIC, nearly at once.
            let packet_ns = 1146.0 * 8.0 / 100.0;
            let late_ns = if noise.is_some() { 1000.0 } else { 0.0 };
            let (d, l, t, r) = (4.0, 300.0 + packet_ns, 1000.0 * longest_us, packet_ns + 2.0 * late_ns);
            let model = (2.0 * d * (l + t) + r) / packet_ns;
            let peak = sim.shared().map(|(_, shared)| shared.slots_peak).max().unwrap();
            assert!(f64::from(peak) <= model, "{peak} descriptors at {timeout}, the model says {model:.0}");
        }
    }
}

/// One setting for all: small and large tensors, with noise and without (§5.2.5's future work).
#[test]
fn a_timeout_that_adapts_is_as_good_as_the_best_fixed_one_everywhere() {
    let shape = "{ leaves = 8, spines = 8, hosts_per_leaf = 8 }\nswitch_latency = \"300 ns\"\nqueue = \"1 MB\"";
    let noise = "[network.noise]\nprobability = \"10 %\"\ndelay = \"1 us\"\nholds = \"packet\"";
    let micros = |timeout: &str, job: &str, rest: &str| {
        let text = file(shape, timeout, &format!("type = \"i32\"\nslots = 1024\n{job}"), rest);
        let sim = run(&text);
        sim.traffic.jobs.all()[0].iterations.last().unwrap().end.unwrap().as_secs_f64() * 1e6
    };
    for (job, rest) in [
        ("tensor = \"4 MiB\"", ""),
        ("tensor = \"4 MiB\"", noise),
        ("tensor = \"256 KiB\"", ""),
        ("tensor = \"1 KiB\"\niterations = 100", ""),
        ("tensor = \"1 KiB\"\niterations = 100", noise),
    ] {
        let adaptive = micros(&adaptive("200 ns", "8 us"), job, rest);
        let waits = ["250 ns", "500 ns", "1 us", "2 us", "5 us"];
        let fixed = waits.map(|timeout| micros(&fixed(timeout), job, rest));
        let best = fixed.into_iter().fold(f64::INFINITY, f64::min);
        assert!(adaptive <= 1.005 * best, "{job} {rest}: {adaptive:.1} us, fixed {fixed:.1?}");
    }
}

/// Fingerprints: the root of a reduce has each contribution once, every rank has a broadcast's source's words and no other.
#[test]
fn a_reduce_a_broadcast_and_a_barrier_are_proven_at_any_array_size() {
    for descriptors in [1, 5, 32_768] {
        for (collective, tensor) in [("reduce", 64 << 10), ("broadcast", 64 << 10), ("barrier", 0)] {
            for root in [0, 7] {
                let root = if collective == "barrier" { String::new() } else { format!("root = {root}") };
                let job = format!(
                    "collective = \"{collective}\"\n{root}\ntensor = {tensor}\niterations = 3\nslots = 32\n\
                     [[fault]]\nlinks = \"all\"\nuntil = \"2 ms\"\nloss = \"1 %\"\nduplication = \"1 %\"\nreordering = \"1 %\"\n\
                     delay = \"20 us\""
                );
                run(&file(SMALL, &format!("descriptors = {descriptors}"), &job, ""));
            }
        }
    }
}

/// §6: the source's words go out once, and come to each host once; what goes the other way is headers.
#[test]
fn a_broadcast_runs_near_line_rate() {
    let sim = run(&file(SMALL, "", "collective = \"broadcast\"\nroot = 5\ntensor = \"2 MiB\"", ""));
    assert_eq!(sent_again(&sim), 0);
    let seconds = sim.traffic.jobs.all()[0].iterations[0].end.unwrap().as_secs_f64();
    let goodput = 2.0 * 8.0 * 1.048576e-3 / seconds;
    let bound = 100.0 * 1024.0 / 1146.0;
    assert!(goodput > 0.9 * bound && goodput <= bound, "{goodput} of {bound} Gbit/s");
}
