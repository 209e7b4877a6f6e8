//! Jobs that arrive, wait, get hosts and memory, train and leave.

use std::ops::ControlFlow;

use proptest::prelude::*;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::engine::Simulation;
use tributary_sim::experiment::build;
use tributary_sim::report::{JobReport, LifetimeReport, Report};
use tributary_sim::{run, run_on_threads};

const NETWORK: &str = "end = '20 s'\nnetwork = { clos = { ports = 4 }, rate = '10 Gbit/s', delay = '1 us', mark_above = '130730 B', \
                       queue = '1 MiB', switch_memory = '1 MB' }\n";

/// Many small jobs, several of which fit on a host.
fn file(protocol: &Protocol, more: &str) -> String {
    format!(
        "{NETWORK}[[training]]\nprotocol = '{protocol}'\nworkers = [2, 9]\nworkers_per_host = 2\nscale = 2000\niterations = 3\n\
         load = '60 %'\nuntil = '6 ms'\n{more}\n"
    )
}

const FLOWS: &str = "[[traffic]]\npattern = 'poisson'\nhosts = 'all'\nmessage = '30 kB'\nload = '20 %'\nuntil = '6 ms'";

/// Those that sum floats without servers.
fn all() -> impl Iterator<Item = &'static Protocol> {
    let sum = Spec::allreduce(1, DType::F32, ReduceOp::Sum);
    let can = move |protocol: &&Protocol| (protocol.check)(&sum, &protocol.options.defaults()).is_ok();
    protocols::ALL.iter().copied().filter(|protocol| protocol.server.is_none()).filter(can)
}

/// The one whose machines in switches can be resized.
fn resized() -> &'static Protocol {
    all().find(|protocol| protocol.resizes).unwrap()
}

/// One that needs nothing of switches.
fn at_hosts() -> &'static Protocol {
    all().find(|protocol| protocol.placement == Placement::Hosts).unwrap()
}

/// Trees where there are any, and small models at hosts.
fn keys(protocol: &Protocol) -> String {
    match protocol.placement {
        Placement::Trees => {
            format!("trees = 4\nslots = 64\nsmall_models = {{ below = '40 MB', protocol = '{}' }}\n", at_hosts())
        }
        Placement::Hosts | Placement::EveryHop => String::new(),
    }
}

fn report(file: &str) -> Report {
    run(&Config::parse(file).unwrap()).unwrap()
}

fn stays(report: &Report) -> impl Iterator<Item = (&JobReport, &LifetimeReport)> {
    report.jobs.iter().filter_map(|job| Some((job, job.lifetime.as_ref()?)))
}

#[test]
fn every_sum_is_proven_and_everything_is_given_back_under_every_protocol() {
    for protocol in all() {
        let report = report(&file(protocol, &format!("{}{FLOWS}", keys(protocol))));
        assert_eq!(report.failure(), None, "{protocol}: {report}");
        let training = report.training.as_ref().unwrap();
        assert!(training.jobs > 8 && training.left == training.jobs, "{training:?}");
        assert_eq!((training.workers_left, training.leaked_bytes), (0, 0));
        assert!(training.most_at_a_time > 2, "{training:?}");
        assert!(report.jobs.iter().all(|job| job.complete && job.completed == 3));
    }
}

#[test]
fn one_to_four_threads_come_to_the_same() {
    for protocol in [resized(), at_hosts()] {
        let config = Config::parse(&file(protocol, &format!("{}{FLOWS}", keys(protocol)))).unwrap();
        let on_threads = |threads| run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap();
        let without_speed = |report: &Report| {
            let mut value = serde_json::to_value(report).unwrap();
            value.as_object_mut().unwrap().remove("speed");
            value.to_string()
        };
        let one = on_threads(1);
        assert_eq!(one.failure(), None);
        for threads in [2, 4] {
            let several = on_threads(threads);
            assert_eq!(without_speed(&several), without_speed(&one), "{protocol} on {threads} threads");
            assert_eq!(several.speed.events, one.speed.events);
        }
    }
}

#[test]
fn no_host_ever_has_more_workers_than_it_may_take_and_no_job_overtakes_another() {
    let crowded = file(at_hosts(), "").replace("load = '60 %'", "load = '100 %'").replace("host = 2", "host = 1");
    let report = report(&crowded);
    assert_eq!(report.failure(), None, "{report}");
    assert!(report.training.as_ref().unwrap().max_wait_seconds > Some(0.0), "some had to wait");
    for (_, now) in stays(&report) {
        let there = stays(&report).filter(|(_, stay)| stay.placed <= now.placed && now.placed < stay.left.unwrap());
        let mut workers = [0; 16];
        there.flat_map(|(job, _)| &job.hosts).for_each(|&host| workers[host as usize] += 1);
        assert!(workers.iter().all(|&workers| workers <= 1), "{workers:?}");
    }
    let placed: Vec<(f64, f64)> = stays(&report).map(|(_, stay)| (stay.arrived, stay.placed)).collect();
    assert!(placed.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{placed:?}");
}

#[test]
fn a_job_computes_before_each_of_its_allreduces() {
    let text = file(at_hosts(), "models = { vgg16 = 1 }").replace("'60 %'", "'1 %'").replace("6 ms", "60 ms");
    let report = report(&text);
    let compute = 64.0 / 154.0 / 2000.0;
    assert!(stays(&report).count() > 0);
    for (job, stay) in stays(&report) {
        assert_eq!((job.tensor_bytes, &*stay.model), (276_716, "vgg16"));
        let (first, second) = (&job.iterations[0], &job.iterations[1]);
        assert!((first.start - stay.placed - compute).abs() < 1e-9, "{first:?}");
        assert!(second.start - first.start > compute);
        assert!(job.training_seconds(stay).unwrap() > 3.0 * compute);
    }
}

#[test]
fn memory_that_a_job_has_left_goes_to_the_others_and_a_newcomer_takes_its_share() {
    let text = file(resized(), "trees = 1\nslots = 4096\nmodels = { vgg16 = 1 }").replace("2, 9", "9, 9");
    let mut sim = build(&Config::parse(&text).unwrap()).unwrap();
    let charged = |sim: &Simulation| (0..20).map(|switch| sim.charged_bytes(switch)).max().unwrap();
    let (mut most, mut now) = (0, Time::ZERO);
    while sim.open() > 0 {
        now = Time(now.0 + 20_000_000);
        sim.run(now);
        most = most.max(charged(&sim));
    }
    assert!((500_000..=1_000_000).contains(&most), "{most} bytes of 1 MB are shared out");
    assert_eq!(charged(&sim), 0);
    assert!(sim.traffic.jobs.all().iter().all(|job| job.is_complete()));
}

#[test]
fn a_job_that_does_not_fit_an_empty_network_is_refused_with_a_sentence() {
    let fixed = all().find(|protocol| protocol.placement == Placement::Trees && !protocol.resizes).unwrap();
    let text = file(fixed, "slots = 4096").replace("1 MB", "100 kB");
    let failure = report(&text).failure().unwrap();
    assert!(failure.contains("training 0 0 ") && failure.contains("cannot run: the jobs at switch"), "{failure}");
}

#[test]
fn what_cannot_be_is_a_sentence() {
    let sentence = |text: &str| build(&Config::parse(text).unwrap()).err().map(|error| error.to_string());
    let good = file(at_hosts(), "");
    assert_eq!(sentence(&good), None);
    let served = protocols::ALL.iter().find(|protocol| protocol.server.is_some()).unwrap();
    let (main, other) = (format!("protocol = '{}'", at_hosts()), format!("protocol = '{served}'"));
    for (from, to, says) in [
        ("[2, 9]", "[2, 17]", "training 0: workers = [2, 17]: it has 16 hosts"),
        ("[2, 9]", "[9, 2]", "training 0: workers = [9, 2] are the fewest"),
        ("[2, 9]", "[1, 1]", "training 0: workers = [1, 1] send nothing"),
        ("scale = 2000", "scale = 0", "training 0: workers_per_host, scale and iterations are at least 1"),
        (
            "scale = 2000",
            "scale = 2000\nmodels = { bert = 1 }",
            "training 0: \"bert\" is not a model: there are alexnet",
        ),
        ("scale = 2000", "scale = 2000\ntrees = 2", "has no trees"),
        (&main, &other, "needs servers, which jobs that come and go do not have"),
        ("until = '6 ms'", "until = '0 ms'", "training 0: until is not after start"),
    ] {
        assert!(good.contains(from), "{from}");
        let said = sentence(&good.replace(from, to)).unwrap_or_default();
        assert!(said.contains(says), "{to}: {said}");
    }
}

#[test]
fn the_load_is_the_one_that_the_file_requests() {
    let text = file(at_hosts(), "").replace("'6 ms'", "'300 ms'").replace("60 %", "30 %").replace("2000", "20000");
    let sim = build(&Config::parse(&text).unwrap()).unwrap();
    let bytes = sim.cluster().unwrap().arrivals().map(|arrival| {
        let tensor = 4.0 * f64::from(arrival.plan.spec.elements);
        3.0 * 2.0 * f64::from(arrival.workers - 1) * tensor
    });
    let load = bytes.sum::<f64>() * 8.0 / (0.3 * 16.0 * 10e9);
    assert!((load / 0.3 - 1.0).abs() < 0.05, "{load} of {} jobs", sim.cluster().unwrap().total());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6) })]

    #[test]
    fn any_seed_ends_with_everything_given_back(seed in 0u64..1_000_000) {
        let text = file(resized(), &keys(resized())).replace("6 ms", "2 ms");
        let report = report(&format!("seed = {seed}\n{text}"));
        prop_assert_eq!(report.failure(), None);
    }
}
