//! PANAMA on simulated fabrics: every sum is proven, over any number of trees; no packet finds its port full; marks and slots
//! hold the windows, without which a flow under DCTCP starves.

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::config::Config;
use tributary_sim::engine::Simulation;
use tributary_sim::experiment::build;
use tributary_sim::topology::LinkId;

/// Runs a file to its end; every sum must be right, and no accelerator may have been too small.
fn run(text: &str) -> Simulation {
    let config = Config::parse(text).unwrap();
    let mut sim = build(&config).unwrap();
    assert!(sim.run_until_finished(Time::ZERO + config.end.0), "not finished\n{text}");
    for job in sim.traffic.jobs.all() {
        assert!(job.is_complete() && job.errors.is_empty(), "{:?}\n{text}", job.errors);
        assert_eq!(sim.drops_in_switches(job).get(DropReason::Overflow), 0, "{text}");
    }
    sim
}

/// A leaf-spine fabric of 4 leaves with 4 hosts each, with a job on all of them.
fn file(job: &str, rest: &str) -> String {
    format!(
        "end = \"20 s\"\n[network]\nleaf_spine = {{ leaves = 4, spines = 4, hosts_per_leaf = 4 }}\nrate = \"10 Gbit/s\"\n\
         delay = \"1 us\"\nqueue = \"1 MiB\"\nmark_above = \"128 KiB\"\n[[job]]\nprotocol = \"panama\"\nhosts = \"all\"\n\
         rto = {{ initial = \"10 ms\", min = \"1 ms\", max = \"200 ms\" }}\n{job}\n{rest}\n"
    )
}

fn sent_again(sim: &Simulation) -> u64 {
    sim.traffic.endpoints.iter().map(|endpoint| endpoint.machine.stats().retransmissions).sum()
}

#[test]
fn four_trees_are_used_evenly_and_at_line_rate() {
    let sim = run(&file("tensor = \"4 MiB\"\ntrees = 4\nslots = 1024", ""));
    assert_eq!(sent_again(&sim), 0);
    let seconds = sim.traffic.jobs.all()[0].iterations[0].end.unwrap().as_secs_f64();
    let goodput = 8.0 * 4.194304e-3 / seconds;
    assert!(goodput > 8.5, "{goodput} Gbit/s");
    // What each spine has sent: sums of all leaves, once to each.
    let of_spine = |spine: u32| {
        let node = NodeId(16 + 4 + spine);
        let ports: Vec<LinkId> = sim.fabric.ports(node).to_vec();
        ports.into_iter().map(|link| sim.fabric.counters(link).packets).sum::<u64>()
    };
    let sent: Vec<u64> = (0..4).map(of_spine).collect();
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(*least > 0 && (most - least) * 50 <= *most, "{sent:?} packets by spine");
}

#[test]
fn every_type_and_any_number_of_trees_with_a_small_pool() {
    for dtype in ["f32", "f16", "i32", "f64"] {
        for (trees, slots) in [(1, 1), (1, 3), (3, 12), (4, 64)] {
            run(&file(
                &format!("tensor = \"64 KiB\"\ntype = \"{dtype}\"\niterations = 2\ntrees = {trees}\nslots = {slots}"),
                "",
            ));
        }
    }
}

#[test]
fn loss_on_all_links_is_survived() {
    let fault = "[[fault]]\nlinks = \"all\"\nloss = \"0.2 %\"";
    let sim = run(&file("tensor = \"256 KiB\"\ntrees = 4\nslots = 64", fault));
    assert!(sent_again(&sim) > 0);
}

/// §4.2.1, R4: "several packets need to be retransmitted". All ranks go back to what was lost, in its tree alone. If one rank lacks
/// the result of a VID, others may have the results of a window from there on, and have sent another window.
#[test]
fn a_loss_costs_each_rank_at_most_twice_the_window_of_one_tree() {
    let (ranks, trees) = (16, 4);
    for depth in [4, 16, 64] {
        let slots = trees * depth;
        let fault = "[[fault]]\nlinks = \"all\"\nloss = \"0.01 %\"";
        let sim = run(&file(&format!("tensor = \"4 MiB\"\ntrees = {trees}\nslots = {slots}"), fault));
        let (lost, again) = (drops_and_pauses(&sim).0, sent_again(&sim));
        assert!(lost > 3 && again > 0, "{lost} lost, {again} sent again");
        assert!(again <= 2 * lost * ranks * depth, "{lost} lost, {again} sent again, {depth} slots a tree");
    }
}

#[test]
fn late_ranks_make_nobody_send_again() {
    let late = "stragglers = { ranks = 2, late = \"300 ms\" }";
    let sim = run(&file(&format!("tensor = \"256 KiB\"\ntrees = 2\nslots = 64\n{late}"), ""));
    assert_eq!(sent_again(&sim), 0);
}

/// Eight jobs on one switch of so much memory.
fn tenants(memory: &str) -> String {
    let job = |number: u32| {
        let hosts: Vec<u32> = (0..4).map(|rank| 4 * number + rank).collect();
        format!("[[job]]\nprotocol = \"panama\"\nhosts = {hosts:?}\ntensor = \"2 MiB\"\nslots = 1024\ntrees = 2\n")
    };
    let jobs: String = (0..8).map(job).collect();
    format!(
        "[network]\nstar = {{ hosts = 32 }}\nrate = \"10 Gbit/s\"\ndelay = \"1 us\"\nqueue = \"1 MiB\"\n\
         mark_above = \"128 KiB\"\nswitch_memory = \"{memory}\"\n{jobs}"
    )
}

#[test]
fn eight_jobs_divide_a_small_switch_and_all_finish_without_an_overflow() {
    let sim = run(&tenants("1 MiB"));
    let caps: Vec<f64> = sim
        .switch_metrics()
        .iter()
        .filter_map(|row| row.metrics.iter().find(|metric| metric.name == "wnd_cap"))
        .map(|metric| metric.value.as_f64())
        .collect();
    assert_eq!(caps.len(), 8);
    assert!(caps.iter().all(|&cap| cap == caps[0] && (2.0..512.0).contains(&cap)), "the memory binds: {caps:?}");
    assert!(sim.traffic.jobs.all().iter().all(|job| job.is_complete()));
}

#[test]
fn a_switch_that_cannot_hold_its_jobs_is_refused_in_a_sentence() {
    let error = build(&Config::parse(&tenants("64 KiB")).unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("switch 0") && error.contains("give switches more"), "{error}");
}

/// Sums that leave a rack at half of the rate at which they are made there, and a window longer than the queues.
fn overloaded(lossless: &str) -> String {
    format!(
        "end = \"2 s\"\n[network]\nleaf_spine = {{ leaves = 4, spines = 1, hosts_per_leaf = 4 }}\nrate = \"10 Gbit/s\"\n\
         delay = \"1 us\"\nqueue = \"1 MiB\"\ncore = {{ rate = \"5 Gbit/s\" }}\n{lossless}\n[[job]]\nprotocol = \"panama\"\n\
         hosts = \"all\"\ntensor = \"16 MiB\"\nslots = 4096\noptions = {{ congestion_control = \"off\" }}\n\
         rto = {{ initial = \"10 ms\", min = \"1 ms\", max = \"200 ms\" }}\n"
    )
}

/// Packets that were dropped, and PAUSEs, of all links.
fn drops_and_pauses(sim: &Simulation) -> (u64, u64) {
    let links = (0..sim.fabric.links().len() as u32).map(|link| sim.fabric.counters(LinkId(link)));
    links.fold((0, 0), |(drops, pauses), link| (drops + link.losses.iter().sum::<u64>(), pauses + link.pauses))
}

/// §4.2.1, R4.
#[test]
fn pause_keeps_queues_from_dropping_where_twice_as_much_comes_as_can_leave() {
    let mut lossy = build(&Config::parse(&overloaded("")).unwrap()).unwrap();
    lossy.run(Time::ZERO + Span::from_millis(20));
    let (drops, pauses) = drops_and_pauses(&lossy);
    assert!(drops > 0 && pauses == 0, "without PAUSE: {drops} packets dropped");
    let sim = run(&overloaded("lossless = {}"));
    let (drops, pauses) = drops_and_pauses(&sim);
    assert!(drops == 0 && pauses > 0, "{drops} packets dropped, {pauses} PAUSEs");
    assert_eq!(sent_again(&sim), 0);
}

/// Figure 10: two ranks on each side of one cable, and a flow under DCTCP that was there before. The shares of both in the
/// last half, of half of the cable. Windows count packets, and the packets of both have 1,500 bytes.
fn shares(marks: &str, option: &str) -> (f64, f64) {
    let text = format!(
        "[network]\ndumbbell = {{ left = 3, right = 3 }}\nrate = \"10 Gbit/s\"\ndelay = \"5 us\"\nqueue = \"1 MiB\"\n\
         {marks}\n[[job]]\nprotocol = \"panama\"\nhosts = [0, 1, 3, 4]\nroots = [1]\nslots = 512\n\
         elements_per_packet = 358\ntensor = \"512 MiB\"\nstart = \"50 ms\"\n{option}\n"
    );
    let mut sim = build(&Config::parse(&text).unwrap()).unwrap();
    let (rank, sender) = (NodeId(0), NodeId(2));
    sim.start_flow(sender, NodeId(5), 1 << 40).unwrap();
    let sent = |sim: &Simulation| [rank, sender].map(|host| sim.fabric.counters(sim.fabric.port(host, 0)).bytes as f64);
    sim.run(Time::ZERO + Span::from_millis(125));
    let half = sent(&sim);
    sim.run(Time::ZERO + Span::from_millis(200));
    let end = sent(&sim);
    let share = |of: usize| (end[of] - half[of]) * 8.0 / 75e-3 / 5e9;
    (share(0), share(1))
}

/// Marks as in §7, and as the queues of a real fabric mark.
const THRESHOLD: &str = "mark_above = \"128 KiB\"";
const RISING: &str = "mark_above = \"64 KiB\"\nmark_all_above = \"512 KiB\"";

#[test]
fn without_congestion_control_the_flow_starves() {
    let (job, flow) = shares(THRESHOLD, "options = { congestion_control = \"off\" }");
    assert!(flow < 0.2, "the job {job}, the flow {flow}");
}

#[test]
fn beside_a_flow_under_dctcp_each_gets_its_share() {
    for marks in [THRESHOLD, RISING] {
        let (job, flow) = shares(marks, "");
        let fair = 0.8..1.25;
        assert!(fair.contains(&job) && fair.contains(&flow), "{marks}: the job {job}, the flow {flow}");
    }
}

/// §7, PANAMA-0.88 and -0.94: who computes for a long time is not waited for, and each result is proven to be one on all ranks.
#[test]
fn averages_do_not_wait_for_the_slowest_ranks() {
    let contributed = |options: &str, fault: &str| {
        let job = format!(
            "tensor = \"256 KiB\"\nop = \"avg\"\ntrees = 2\nslots = 512\niterations = 3\n{options}\n\
             stragglers = {{ ranks = 1, late = \"5 ms\" }}"
        );
        let sim = run(&file(&job, fault));
        sim.traffic.endpoints.iter().filter_map(|endpoint| endpoint.machine.stats().contributed()).reduce(f64::max)
    };
    assert_eq!(contributed("", ""), None);
    let contributed_of_15 = contributed("options = { partial = \"15/16\" }", "");
    assert!(contributed_of_15.is_some_and(|share| (15.0 / 16.0..1.0).contains(&share)), "{contributed_of_15:?}");
    let contributed_of_14 =
        contributed("options = { partial = \"14/16\" }", "[[fault]]\nlinks = \"all\"\nloss = \"0.2 %\"");
    assert!(contributed_of_14.is_some_and(|share| (14.0 / 16.0..1.0).contains(&share)), "{contributed_of_14:?}");
}

#[test]
fn results_that_may_lack_ranks_are_averages_and_of_as_many_ranks_as_can_be_checked() {
    let error = |job: &str| build(&Config::parse(&file(job, "")).unwrap()).err().expect("it is refused").to_string();
    let sentence = error("tensor = \"64 KiB\"\noptions = { partial = \"15/16\" }");
    assert!(sentence.contains("use op=avg, or leave the option partial out"), "{sentence}");
}
