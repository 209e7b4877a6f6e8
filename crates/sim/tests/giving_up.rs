//! Runs that cannot be finished: they end soon, and say what the job has lost, what is missing, and whose end it was.

use std::ops::ControlFlow;

use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::protocol::Placement::{EveryHop, Hosts, Trees};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::experiment::{run, run_on_threads};
use tributary_sim::report::{Report, Stop};

/// Leaves are switches 0 and 1, spines 2 and 3. Background traffic without end would last until `end`.
const LEAF_SPINE: &str = "
    [network]
    leaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 4 }
    rate = '10 Gbit/s'
    [[traffic]]
    pattern = 'uniform'
    hosts = [6, 7]
    message = '64 KiB'
    load = '1 %'
";

fn report(more: &str) -> Report {
    run(&Config::parse(&format!("{LEAF_SPINE}{more}")).unwrap()).unwrap()
}

/// A job of five collectives of 100 kB, 0.1 ms each, on hosts 0 to 5, under a protocol with machines there.
fn job(placement: Placement, more: &str) -> String {
    let protocol = protocols::ALL.iter().find(|protocol| protocol.placement == placement).unwrap();
    let protocol = protocol.name;
    format!("[[job]]\nprotocol = '{protocol}'\nhosts = [0, 1, 2, 3, 4, 5]\ntensor = '100 kB'\niterations = 5\n{more}\n")
}

#[test]
fn a_job_whose_trees_root_died_names_switch_and_job_and_what_is_missing() {
    let report = report(&format!("{}[[fault]]\nat = '250 us'\ndead = 'switch 3'", job(Trees, "roots = [3]")));
    let failure = report.failure().unwrap();
    let start = "job 0 can no longer finish: spine 1, the root of its tree, died at 250.000 us and does not come \
                 back; it has completed ";
    assert!(failure.starts_with(start), "{failure}");
    assert!(failure.contains(" of its 5 collectives, and "), "{failure}");
    assert!(failure.ends_with(" of its 6 ranks lack the result of the next one"), "{failure}");
    assert!(report.seconds < 0.1, "the file's end is 10 s, and the run was over at {} s", report.seconds);
    assert_eq!(report.stop, Stop::Finished);
    let text = report.to_string();
    assert!(text.contains("  STUCK       can no longer finish: spine 1"), "{text}");
    assert!(text.lines().next().unwrap().contains(": over after "), "{text}");
}

#[test]
fn other_jobs_go_on_and_a_spine_that_no_tree_uses_is_not_missed() {
    let two = format!("{}{}", job(Trees, "roots = [3]"), job(Trees, "name = 'other'\nroots = [2]"));
    let report = report(&format!("{two}[[fault]]\nat = '250 us'\ndead = 'spine 1'"));
    let complete: Vec<bool> = report.jobs.iter().map(|job| job.complete).collect();
    assert_eq!(complete, [false, true]);
}

#[test]
fn a_cable_of_a_tree_a_rank_and_a_way_out_are_missed_as_well() {
    let cases = [
        (
            job(Trees, "trees = 2\nroots = [2, 3]"),
            "links = [['leaf 1', 'spine 0']]\ndown = true",
            "the cable between leaf 1 and spine 0, part of its tree 0, broke at 250.000 us",
        ),
        (job(Trees, "placement = 'packed'"), "dead = 'host 4'", "host 4, its rank 4, died at 250.000 us"),
        (
            job(Hosts, "placement = 'packed'"),
            "links = [['host 2', 'switch 0']]\ndown = true",
            "the cable between host 2 and leaf 0 broke at 250.000 us and does not come back, so that no path leads \
             from host 0 to host 2;",
        ),
        (
            job(EveryHop, "placement = 'packed'"),
            "dead = 'leaf 1'",
            "leaf 1 died at 250.000 us and does not come back, so that no path leads from host 0 to host 4;",
        ),
    ];
    for (job, fault, sentence) in cases {
        let report = report(&format!("{job}[[fault]]\nat = '250 us'\n{fault}"));
        let failure = report.failure().unwrap();
        assert!(failure.contains(sentence), "{failure}");
        assert!(report.seconds < 0.2, "{}", report.seconds);
    }
}

#[test]
fn what_comes_back_in_time_is_not_missed() {
    let cable = "[[fault]]\nat = '250 us'\nuntil = '60 ms'\nlinks = [['switch 1', 'switch 3']]\ndown = true";
    let report = report(&format!("{}{cable}", job(Trees, "roots = [3]")));
    assert_eq!(report.failure(), None);
    assert!(report.seconds > 0.06);
}

/// Each link takes 10 us: leaves have the results at 36 us and lose all on the way to hosts, and the root is dead when
/// hosts ask again.
#[test]
fn who_lacks_only_results_that_leaves_have_does_not_give_up() {
    let slow = LEAF_SPINE.replace("rate =", "delay = '10 us'\n    rate =");
    let small = job(Trees, "roots = [3]").replace("iterations = 5", "iterations = 1").replace("100 kB", "4 kB");
    let faults = "[[fault]]\nat = '36 us'\nuntil = '60 us'\nlinks = 'hosts'\ndown = true\n\
                  [[fault]]\nat = '37 us'\ndead = 'spine 1'";
    let report = run(&Config::parse(&format!("{slow}{small}{faults}")).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    assert!(report.jobs[0].iterations[0].end.unwrap() > 1e-3, "after a retransmission timeout: {report}");
}

#[test]
fn threads_give_up_at_the_same_time() {
    let text = format!("{LEAF_SPINE}{}[[fault]]\nat = '250 us'\ndead = 'switch 3'", job(Trees, "roots = [3]"));
    let config = Config::parse(&text).unwrap();
    let [one, two] =
        [1, 2].map(|threads| run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap());
    assert_eq!((one.failure(), &one.trace_hash, one.seconds), (two.failure(), &two.trace_hash, two.seconds));
}

#[test]
fn a_switch_that_forgets_its_sums_ends_the_collective_at_its_default_timeout() {
    let fault = "[[fault]]\nat = '250 us'\nuntil = '300 us'\ndead = 'switch 3'";
    let report = report(&format!("{}{fault}", job(Trees, "roots = [3]")));
    let failure = report.failure().unwrap();
    assert!(failure.starts_with("job 0: rank ") && failure.contains(" in collective 2 at 1000"), "{failure}");
    assert!((1.0..1.1).contains(&report.seconds), "{}", report.seconds);
}

#[test]
fn an_end_inside_the_run_says_so_and_how_far_it_was() {
    let text = format!("end = '250 us'\n{LEAF_SPINE}{}", job(Trees, ""));
    let report = run(&Config::parse(&text).unwrap()).unwrap();
    assert_eq!(report.stop, Stop::End);
    let failure = report.failure().unwrap();
    assert!(failure.contains("job 0 did not complete in "), "{failure}");
    assert!(failure.contains(": 2 of its 5 collectives are complete"), "{failure}");
    assert!(failure.ends_with("; the run was over at end = 250 us, which the file may put later"), "{failure}");
    let text = report.to_string();
    assert!(text.contains("NOT FINISHED at end = 250 us, after "), "{text}");
    assert!(text.contains("(median of 2 of 5)"), "{text}");
}

#[test]
fn a_median_over_all_collectives_says_how_many_they_are() {
    let text = report(&job(Trees, "")).to_string();
    assert!(text.contains("(median of 5)\n"), "{text}");
}
