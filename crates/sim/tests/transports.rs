//! Rate controllers and recoveries of flows against their papers' properties, on one bottleneck.

use std::collections::BTreeSet;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::config::Config;
use tributary_sim::engine::Simulation;
use tributary_sim::experiment::build;
use tributary_sim::run;
use tributary_sim::swarm::{run_seed, scenario};
use tributary_sim::topology::LinkId;

/// A full packet on a link.
const PACKET: f64 = 1538.0;
const RATE: f64 = 10e9;

/// Two senders with links of the bottleneck's rate, 10 Gbit/s; the second begins later.
struct Pair {
    sim: Simulation,
}

/// What a pair did once its rates were steady.
#[derive(Debug)]
struct Steady {
    /// The senders' rates, bit/s on the link.
    rates: [f64; 2],
    /// The mean and the largest of the bottleneck's queue, in packets.
    queue: f64,
    longest: f64,
    /// The share of packets that were marked.
    marked: f64,
}

impl Steady {
    fn total(&self) -> f64 {
        (self.rates[0] + self.rates[1]) / RATE
    }

    fn ratio(&self) -> f64 {
        self.rates[0] / self.rates[1]
    }
}

impl Pair {
    fn new(network: &str, transport: &str) -> Pair {
        let text = format!(
            "[network]\ndumbbell = {{ left = 2, right = 2 }}\nrate = \"10 Gbit/s\"\ndelay = \"5 us\"\nqueue = \"4 MiB\"\n\
             {network}\n[transport]\n{transport}\n"
        );
        Pair { sim: build(&Config::parse(&text).unwrap()).unwrap() }
    }

    /// One flow for a while, then both; measured for the last 100 ms after `settling`.
    fn run(mut self, settling: Span) -> Steady {
        self.sim.start_flow(NodeId(0), NodeId(2), 1 << 40).unwrap();
        self.sim.run(Time::ZERO + Span::from_millis(10));
        self.sim.start_flow(NodeId(1), NodeId(3), 1 << 40).unwrap();
        let begin = Time::ZERO + settling;
        self.sim.run(begin);
        let middle = |sim: &Simulation| sim.fabric.counters(LinkId(8));
        let sent =
            |sim: &Simulation| [NodeId(0), NodeId(1)].map(|host| sim.fabric.counters(sim.fabric.port(host, 0)).bytes);
        let (before, at_first, steps) = (sent(&self.sim), middle(&self.sim), 20_000u32);
        let (mut queued, mut longest) = (0.0, 0.0f64);
        for step in 1..=steps {
            let now = begin + Span::from_micros(5 * u64::from(step));
            self.sim.run(now);
            let packets = self.sim.fabric.link(LinkId(8)).queued_bytes(now) as f64 / PACKET;
            queued += packets;
            longest = longest.max(packets);
        }
        let after = sent(&self.sim);
        let rates = [0, 1].map(|flow| (after[flow] - before[flow]) as f64 * 8.0 / (f64::from(steps) * 5e-6));
        let now = middle(&self.sim);
        let marked = (now.marks - at_first.marks) as f64 / (now.packets - at_first.packets) as f64;
        let steady = Steady { rates, queue: queued / f64::from(steps), longest, marked };
        println!("{steady:?}");
        steady
    }
}

/// HPCC §4.3: the busiest link is used to `eta` = 95 %, with hardly a queue, and flows converge to equal shares.
#[test]
fn two_flows_under_hpcc_use_the_target_of_the_link_without_a_queue() {
    let steady = Pair::new("", "congestion_control = \"hpcc\"").run(Span::from_millis(300));
    assert!((0.8..1.25).contains(&steady.ratio()), "{steady:?}");
    assert!((steady.total() - 0.95).abs() < 0.02, "{steady:?}");
    assert!(steady.queue < 2.0 && steady.longest < 10.0, "{steady:?}");
}

/// Zhu et al., "ECN or Delay" (CoNEXT 2016), equation 11: DCQCN's fixed point has the same rate for all flows, and marks a
/// share of about `((R_AI N^2) / (tau C^2) (1/B + N / (T C))^2)^(1/3)` of packets.
#[test]
fn two_flows_under_dcqcn_have_equal_shares_and_their_fixed_points_queue() {
    let marks = "mark_above = \"61520 B\"\nmark_all_above = \"615200 B\"";
    let steady = Pair::new(marks, "congestion_control = \"dcqcn\"").run(Span::from_millis(400));
    assert!((0.9..1.1).contains(&steady.ratio()), "{steady:?}");
    assert!(steady.total() > 0.95, "{steady:?}");
    // In packets: R_AI is a thousandth of C, tau 50 us, B 10 MB and T 55 us.
    let (c, n) = (RATE / 8.0 / PACKET, 2.0f64);
    let per_increase = 1.0 / (1e7 / 1500.0) + n / (55e-6 * c);
    let fixed_point = (1e-3 * c * n * n / (50e-6 * c * c) * per_increase * per_increase).cbrt();
    println!("marked {}, at the fixed point {fixed_point}", steady.marked);
    assert!((0.5..2.0).contains(&(steady.marked / fixed_point)), "{steady:?}, {fixed_point}");
    assert!(steady.queue < 40.0 + fixed_point * 360.0, "{steady:?}");
}

/// TIMELY §4.3: the round trip stays between the thresholds, and the link is full.
#[test]
fn flows_under_timely_keep_the_round_trip_between_the_thresholds() {
    let steady = Pair::new("", "congestion_control = \"timely\"").run(Span::from_millis(300));
    assert!(steady.total() > 0.95, "{steady:?}");
    // Without a queue a round trip takes 30 us and two packets; the thresholds are 50 and 500 us.
    let longest = 32e-6 + steady.longest * PACKET * 8.0 / RATE;
    assert!(longest < 500e-6 && steady.queue > 5.0, "{steady:?}: {longest} s");
}

/// Go-back-N with a window of W packets per round trip: each loss costs what was sent until the refusal came, about W, so
/// that 1 + p W / (1 - p) packets are sent for each that arrives. Selective recovery sends 1 / (1 - p).
#[test]
fn go_back_n_sends_a_window_again_for_each_loss() {
    let again = |recovery: &str| {
        let text = format!(
            "[network]\ndumbbell = {{ left = 1, right = 1 }}\nrate = \"10 Gbit/s\"\ndelay = \"5 us\"\n\
             [transport]\ncongestion_control = \"fixed\"\ninitial_window = 20\nrecovery = \"{recovery}\"\n\
             [[traffic]]\npattern = \"list\"\nflows = [{{ from = \"host 0\", to = \"host 1\", bytes = \"60 MB\" }}]\n\
             [[fault]]\nlinks = [[\"host 0\", \"switch 0\"]]\nloss = \"0.2 %\"\n"
        );
        let report = run(&Config::parse(&text).unwrap()).unwrap();
        assert_eq!(report.failure(), None, "{report}");
        report.transport.unwrap().retransmissions as f64 / (60e6 / 1460.0)
    };
    let (selective, go_back) = (again("selective"), again("go_back_n"));
    println!("{selective} and {go_back} sent again a packet");
    assert!((selective - 0.002).abs() < 0.0006, "{selective}");
    assert!((go_back - 0.002 * 20.0).abs() < 0.01, "{go_back}");
}

#[test]
fn patterns_have_transports_of_their_own_side_by_side() {
    let text = "[network]\nstar = { hosts = 4 }\nrate = \"10 Gbit/s\"\nmark_above = \"80 KiB\"\n\
                [[traffic]]\npattern = \"list\"\nflows = [{ from = \"host 0\", to = \"host 1\", bytes = 99999 }]\n\
                [[traffic]]\npattern = \"permutation\"\nhosts = [2, 3]\nmessage = \"1 MB\"\ntransport = \"dctcp\"\n\
                transport_settings = { congestion_control = \"dcqcn\", recovery = \"go_back_n\" }\n";
    let report = run(&Config::parse(text).unwrap()).unwrap();
    let transport = report.transport.as_ref().unwrap();
    assert_eq!((transport.congestion_control.as_str(), transport.finished), ("dctcp, dcqcn", 3));
    let each: Vec<(&str, usize)> =
        transport.each.iter().map(|each| (each.congestion_control.as_str(), each.finished)).collect();
    assert_eq!(each, [("dctcp", 1), ("dcqcn", 2)]);
    assert_eq!(report.flow_rows.iter().filter(|row| row.kind == "dcqcn").count(), 2);
    assert!(report.to_string().contains("flows under dcqcn: 2 of 2 arrived whole"), "{report}");
}

/// Copies of a packet that a fault doubles share a payload, into which switches write different records.
#[test]
fn flows_under_hpcc_end_over_links_that_double_packets() {
    let text = "[network]\nleaf_spine = { leaves = 2, spines = 1, hosts_per_leaf = 1 }\n\
                [transport]\ncongestion_control = \"hpcc\"\n\
                [[traffic]]\npattern = \"list\"\nflows = [{ from = \"host 0\", to = \"host 1\", bytes = \"1 MB\" }]\n\
                [[fault]]\nlinks = \"all\"\nduplication = \"50 %\"\ndelay = \"10 us\"\n";
    let report = run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!((report.failure(), report.transport.map(|it| it.finished)), (None, Some(1)));
}

/// How long a flow of 4 MB takes over four paths, each with a quarter of its host's rate, one of which may be slower.
fn seconds_over_four_paths(spray: &str, slow: &str) -> f64 {
    let text = format!(
        "[network]\nleaf_spine = {{ leaves = 2, spines = 4, hosts_per_leaf = 1 }}\nrate = \"40 Gbit/s\"\nqueue = \"1 MB\"\n\
         core = {{ rate = \"10 Gbit/s\" }}\nmark_above = \"100 kB\"\n[transport]\nspray = \"{spray}\"\n\
         [[traffic]]\npattern = \"list\"\nflows = [{{ from = \"host 0\", to = \"host 1\", bytes = \"4 MB\" }}]\n{slow}"
    );
    let report = run(&Config::parse(&text).unwrap()).unwrap();
    assert_eq!(report.failure(), None);
    report.flow_rows[0].seconds
}

#[test]
fn a_flow_whose_packets_take_several_paths_has_the_rate_of_all() {
    let one = seconds_over_four_paths("flow", "");
    for spray in ["packet", "reps"] {
        let all = seconds_over_four_paths(spray, "");
        assert!(all < one / 3.0, "{spray}: {all} s, and {one} s over one path");
    }
}

/// The slow path marks, and blind spraying gives it as much as the others.
#[test]
fn entropies_that_are_recycled_avoid_a_slow_path() {
    let slow = "[[fault]]\nlinks = [[\"leaf 0\", \"spine 0\"]]\nrate = \"1 Gbit/s\"\n";
    let (blind, recycled) = (seconds_over_four_paths("packet", slow), seconds_over_four_paths("reps", slow));
    assert!(recycled < blind / 2.0, "recycled {recycled} s, blind {blind} s");
}

/// Switches go on hashing packets onto it.
#[test]
fn entropies_that_are_recycled_avoid_a_path_that_has_failed() {
    let failed = "[[fault]]\nat = \"200 us\"\nlinks = [[\"leaf 0\", \"spine 0\"]]\nloss = \"100 %\"\n";
    let (blind, recycled) = (seconds_over_four_paths("packet", failed), seconds_over_four_paths("reps", failed));
    assert!(recycled < blind / 2.0, "recycled {recycled} s, blind {blind} s");
}

#[test]
fn settings_that_cannot_work_are_refused_with_a_sentence() {
    let refusal = |network: &str, rest: &str| {
        let text = format!("[network]\n{network}\n{rest}");
        build(&Config::parse(&text).unwrap()).map(drop).unwrap_err().to_string()
    };
    let star = "star = { hosts = 2 }";
    let error = refusal(star, "[transport]\ncongestion_control = \"dcqcn\"\n");
    assert!(error.contains("dcqcn slows down at marks alone, and no queue marks packets: set mark_above"), "{error}");
    let sprayed = format!("{star}\nrouting = \"random\"");
    let error = refusal(&sprayed, "[transport]\nrecovery = \"go_back_n\"\n");
    assert!(error.contains("it needs a routing that keeps the path of a flow"), "{error}");
    let error = refusal(&sprayed, "[transport]\nspray = \"reps\"\n");
    assert!(error.contains("spray chooses among the paths of routing = \"ecmp\""), "{error}");
    let error = refusal(star, "[transport]\nspray = \"packet\"\nrecovery = \"go_back_n\"\n");
    assert!(error.contains("and no spray"), "{error}");
    let ends = ["host 0", "switch 0", "switch 1", "switch 2", "switch 3", "switch 4", "switch 5", "host 1"];
    let link = |pair: &[&str]| format!("[[network.graph.link]]\nbetween = [\"{}\", \"{}\"]\n", pair[0], pair[1]);
    let links: String = ends.windows(2).map(link).collect();
    let line = &format!("[network.graph]\nhosts = 2\nswitches = 6\n{links}");
    let error = refusal(line, "[transport]\ncongestion_control = \"hpcc\"\n");
    assert!(error.contains("hpcc reads what up to 5 switches write, and a path has 6"), "{error}");
    let stream = "[[traffic]]\npattern = \"stream\"\nfrom = [0]\nto = [1]\nrate = \"1 Gbit/s\"\n\
                  transport_settings = { congestion_control = \"cubic\" }\n";
    let error = refusal(star, stream);
    assert!(error.contains("traffic 0: transport_settings is for flows under a transport"), "{error}");
    let shared = format!("{star}\nshared_buffer = \"1 MB\"\nlossless = {{}}");
    let error = refusal(&shared, "");
    assert!(error.contains("lossless switches drop nothing: leave one of the two out"), "{error}");
    let error = refusal(&format!("{star}\nshared_alpha = 2.0"), "");
    assert!(error.contains("shared_alpha is for switches with a shared_buffer"), "{error}");
    let error = refusal(star, &stream.replace("stream", "permutation").replace("cubic", "hope"));
    assert!(error.contains("traffic 0: transport_settings: there is no congestion_control \"hope\""), "{error}");
}

/// Choudhury and Hahne: n queues that overflow settle at `alpha B / (1 + n alpha)` each.
#[test]
fn queues_that_overflow_divide_a_shared_buffer_by_its_alpha() {
    let buffer = 150_000.0;
    for (alpha, receivers) in [(1.0, 1u32), (1.0, 2), (0.5, 2), (8.0, 2)] {
        let stream = |from: u32, to: u32| {
            format!(
                "[[traffic]]\npattern = \"stream\"\nfrom = [{from}]\nto = [{to}]\npacket = 1000\nrate = \"9 Gbit/s\"\n"
            )
        };
        let streams = (0..receivers).flat_map(|to| [stream(4 + 2 * to, to), stream(5 + 2 * to, to)]);
        let text = format!(
            "[network]\nstar = {{ hosts = 8 }}\nrate = \"10 Gbit/s\"\nqueue = \"1 MB\"\n\
             shared_buffer = \"150 kB\"\nshared_alpha = {alpha}\n{}",
            streams.collect::<String>()
        );
        let mut sim = build(&Config::parse(&text).unwrap()).unwrap();
        let now = Time::ZERO + Span::from_millis(5);
        sim.run(now);
        let expected = alpha * buffer / (1.0 + f64::from(receivers) * alpha);
        for to in 0..receivers {
            let into = sim.fabric.port(NodeId(to), 0).reverse();
            let queued = sim.fabric.link(into).queued_bytes(now) as f64;
            assert!((queued - expected).abs() <= 2_000.0 * (1.0 + alpha), "alpha {alpha}: {queued} of {expected}");
        }
    }
}

/// The checker counted a loss as wrong whose queue was shorter than its own limit, in a shared buffer.
#[test]
fn losses_of_a_shared_buffer_are_not_taken_for_mistakes() {
    assert!(scenario(276).config.network.shared_buffer.is_some());
    assert_eq!(run_seed(276).failures, [""; 0]);
}

/// A swarm that never drew a controller would not test it.
#[test]
fn the_swarm_draws_controllers_recoveries_and_shared_buffers() {
    let mut drawn = BTreeSet::new();
    for config in (0..3_000).map(|seed| scenario(seed).config) {
        drawn.extend(config.network.shared_buffer.map(|_| "shared_buffer".to_string()));
        for settings in config.traffic.into_iter().filter_map(|section| section.transport_settings) {
            drawn.extend(settings.congestion_control);
            drawn.extend(settings.recovery.map(|recovery| format!("{recovery:?}")));
        }
    }
    let wanted = ["GoBackN", "cubic", "dcqcn", "hpcc", "shared_buffer", "swift", "timely"];
    assert_eq!(drawn, wanted.map(String::from).into());
}
