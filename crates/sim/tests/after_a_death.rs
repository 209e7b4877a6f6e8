//! Jobs that share one switch's memory, and a rank that dies without a word: how fast another job is at its goodput again, in
//! virtual time, with the lease that real switches have. Nobody tells the dead rank's job here, so it gives nothing back by
//! itself, and the bound is the lease's alone.

use tributary_proto::contract::options::OptionSpec;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::run;

/// When the rank dies.
const DEATH_S: f64 = 0.5;
/// From a death until other jobs are at their goodput.
const BOUND_S: f64 = 1.0;

fn specs(protocol: &Protocol) -> &'static [OptionSpec] {
    protocol.shared.as_ref().map_or(&[], |shared| shared.options.specs)
}

/// The protocols whose switches have aggregators, with the lease of a real switch whose operator chooses nothing.
fn with_aggregators() -> impl Iterator<Item = (&'static Protocol, &'static str)> {
    let has = |protocol: &&Protocol| specs(protocol).iter().any(|spec| spec.name == "aggregators");
    let lease = |protocol: &'static Protocol| specs(protocol).iter().find(|spec| spec.name == "lease");
    let all = protocols::ALL.iter().copied().filter(has);
    all.map(move |protocol| (protocol, lease(protocol).expect("an aggregator has a lease").default))
}

/// Two jobs of four ranks each, on links of 100 Mbit/s. The switch has room for 32 blocks, and each job a window of 64: what
/// the first job holds, the other lacks.
fn report(protocol: &Protocol, lease: &str, fault: &str) -> Report {
    let job = |name: &str, hosts: &str, iterations: u32| {
        format!(
            "[[job]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nhosts = {hosts}\ntype = \"i32\"\ntensor = \"200 kB\"\n\
             slots = 64\nelements_per_packet = 256\niterations = {iterations}\ntimeout = \"60 s\"\n\
             rto = {{ initial = \"20 ms\", min = \"1 ms\", max = \"200 ms\" }}\n"
        )
    };
    let text = format!(
        "end = \"20 s\"\n[network]\nstar = {{ hosts = 8 }}\nrate = \"100 Mbit/s\"\ndelay = \"20 us\"\nqueue = \"128 kB\"\n\
         mark_above = \"24 kB\"\n[switches.{protocol}]\naggregators = 32\npath_packets = 8\nlease = \"{lease}\"\n{}{}{fault}",
        job("doomed", "[0, 1, 2, 3]", 1_000),
        job("others", "[4, 5, 6, 7]", 120),
    );
    run(&Config::parse(&text).unwrap()).unwrap()
}

/// When each collective of the other job began, and the seconds that it took.
fn others(report: &Report) -> Vec<(f64, f64)> {
    let job = report.jobs.iter().find(|job| job.name == "others").expect("the other job");
    assert!(job.complete, "the other job goes on: {report}");
    job.iterations.iter().map(|one| (one.start, one.end.expect("it is complete") - one.start)).collect()
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn another_job_is_at_its_goodput_within_a_second_of_a_rank_s_death() {
    for (protocol, lease) in with_aggregators() {
        let fault = format!("[[fault]]\nat = \"{DEATH_S} s\"\ndead = \"host 2\"\n");
        let report = report(protocol, lease, &fault);
        let doomed = report.jobs.iter().find(|job| job.name == "doomed").expect("the job of the dead rank");
        assert!(!doomed.complete && doomed.completed > 5, "it was under way: {report}");
        let all = others(&report);
        let before = median(all.iter().filter(|(start, took)| start + took < DEATH_S).map(|&(_, took)| took));
        let after: Vec<_> = all.iter().filter(|(start, _)| *start >= DEATH_S + BOUND_S).collect();
        assert!(after.len() > 10, "{protocol}: it ran for long enough: {report}");
        for (start, took) in after {
            assert!(*took <= 1.02 * before, "{protocol}: {took} s at {start} s, and {before} s before the death");
        }
    }
}
