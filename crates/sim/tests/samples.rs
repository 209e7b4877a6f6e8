//! Links and switches over time.

use std::ops::ControlFlow;

use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::topology::LinkId;
use tributary_sim::{Mark, run, run_on_threads};

const CONGESTED: &str = "
    [network]
    star = { hosts = 4 }
    rate = '10 Gbit/s'
    [[traffic]]
    pattern = 'permutation'
    hosts = [0, 1]
    message = '100 kB'
    packet = 1000
    [report]
";

fn with_report(keys: &str) -> Report {
    run(&Config::parse(&format!("{CONGESTED}{keys}")).unwrap()).unwrap()
}

#[test]
fn links_are_looked_at_in_equal_steps_and_nothing_else_changes() {
    let plain = with_report("");
    assert_eq!(plain.samples, None);
    let seen = with_report("sample = '1 us'");
    assert_eq!((&seen.trace_hash, seen.speed.events), (&plain.trace_hash, plain.speed.events));
    let samples = seen.samples.as_ref().unwrap();
    // 100 packets of 800 ns over two links with 1 us of delay each.
    assert_eq!((samples.steps, samples.links.len()), (82, 8));
    let of = |link: u32| samples.link_samples().filter(move |sample| sample.link == LinkId(link));
    // Host 0's NIC sends from the beginning to 80 us.
    let sent: f64 = of(0).map(|sample| sample.utilisation).sum();
    assert!((sent - 80.0).abs() < 1e-9, "{sent} us");
    assert!(of(0).take(80).all(|sample| sample.utilisation == 1.0));
    assert!(of(0).skip(80).all(|sample| sample.utilisation == 0.0));
    // The switch holds one packet at a time. The first comes at 1.8 us and takes 800 ns; the next follows at once.
    let queued: Vec<u64> = of(3).take(3).map(|sample| sample.queued).collect();
    assert_eq!(queued, [0, 750, 500]);
    assert!(of(4).all(|sample| (sample.queued, sample.utilisation) == (0, 0.0)));
}

#[test]
fn only_some_links_may_be_looked_at() {
    let seen = with_report("sample = '1 us'\nlinks = [['switch 0', 'host 1']]");
    assert_eq!(seen.samples.unwrap().links, [LinkId(2), LinkId(3)]);
}

#[test]
fn a_picture_has_steps_enough_and_not_too_many() {
    let long = CONGESTED.replace("100 kB", "10 MB");
    let seen = run(&Config::parse(&format!("{long}sample = 'auto'")).unwrap()).unwrap();
    let sampled = seen.sampled.unwrap();
    assert!((256..=512).contains(&sampled.steps), "{sampled:?}");
    let titles: Vec<String> = seen.figures().into_iter().map(|figure| figure.title).collect();
    assert!(titles.contains(&"Fullest queue of each group of links over time".to_string()), "{titles:?}");
    assert!(titles.contains(&"Mean use of links over time".to_string()), "{titles:?}");
    assert!(seen.figures().iter().flat_map(|figure| &figure.series).all(|series| series.points.len() <= 257));
}

#[test]
fn the_memory_that_sums_take_is_seen_over_time() {
    for protocol in ["switchml", "canary"] {
        let file = format!(
            "[network]\nstar = {{ hosts = 4 }}\nnoise = {{ probability = 0.2, delay = '300 ns' }}\n[[job]]\nprotocol = '{protocol}'\ntensor = '256 KiB'\nslots = 16\n\
             [report]\nsample = '500 ns'\n"
        );
        let seen = run(&Config::parse(&file).unwrap()).unwrap();
        let samples = seen.samples.as_ref().unwrap();
        let most = samples.switch_samples().map(|(.., occupancy)| occupancy.bytes).max().unwrap();
        assert!(0 < most && most <= seen.switch_memory_bytes as u64, "{protocol}: {most}");
        assert!(samples.switch_samples().any(|(.., occupancy)| occupancy.slots > 0), "{protocol}");
    }
}

#[test]
fn faults_are_marks_in_pictures_over_time() {
    let file = "
        end = '1 s'
        [network]
        leaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 2 }
        [[job]]
        protocol = '{PROTOCOL}'
        tensor = '1 MB'
        [[fault]]
        at = '20 us'
        until = '40 us'
        links = [['leaf 0', 'spine 1']]
        down = true
        [[fault]]
        at = '30 us'
        links = 'hosts'
        loss = '0.1 %'
        [[fault]]
        at = '500 ms'
        dead = 'spine 0'
        [report]
        sample = '1 us'
    ";
    let file = file.replace("{PROTOCOL}", protocols::ALL[0].name);
    let seen = run(&Config::parse(&file).unwrap()).unwrap();
    let mark = |name: &str, from, to| Mark { name: name.into(), from, to };
    let expected = [mark("leaf 0 to spine 1: down", 20.0, Some(40.0)), mark("hosts' links: loss 0.1 %", 30.0, None)];
    for figure in seen.figures() {
        // The third fault comes after the run.
        let in_us = figure.x == "simulated time, us";
        let factor = if in_us { 1.0 } else { 1e-3 };
        let over_time = figure.x.starts_with("simulated time");
        let scaled =
            expected.clone().map(|mark| Mark { from: mark.from * factor, to: mark.to.map(|to| to * factor), ..mark });
        assert_eq!(figure.marks.len(), if over_time { 2 } else { 0 }, "{}", figure.title);
        for (mark, wanted) in figure.marks.iter().zip(&scaled) {
            assert_eq!(mark.name, wanted.name);
            assert!((mark.from - wanted.from).abs() < 1e-9, "{mark:?}");
            assert_eq!(mark.to.is_some(), wanted.to.is_some());
        }
    }
    assert_eq!(seen.faults.len(), 3);
    assert_eq!((seen.faults[2].what.as_str(), seen.faults[2].at, seen.faults[2].until), ("spine 0 dead", 0.5, None));
}

#[test]
fn threads_see_the_same() {
    let file = "
        end = '3 ms'
        [network]
        clos = { ports = 4 }
        delay = '700 ns'
        queue = '60 kB'
        routing = 'random'
        [[job]]
        protocol = 'canary'
        hosts = 8
        tensor = '64 KiB'
        [[traffic]]
        pattern = 'permutation'
        hosts = 'all'
        message = '100 kB'
        [[fault]]
        links = [['switch 0', 'switch 8']]
        at = '3.3 us'
        until = '9 us'
        down = true
        [report]
    ";
    // Also a run that does not end by itself, and one with more steps than a picture has.
    for (from, to) in [("", ""), ("3 ms", "5 us"), ("100 kB", "1 MB")] {
        for sample in ["'130 ns'", "'auto'"] {
            let config = Config::parse(&format!("{}sample = {sample}", replaced(file, from, to))).unwrap();
            let seen = |threads| run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap().samples;
            let one = seen(1);
            assert!(one.as_ref().unwrap().steps > 10);
            assert!(one.as_ref().unwrap().link_samples().any(|sample| sample.queued > 2000));
            assert_eq!(seen(2), one);
            assert_eq!(seen(4), one);
        }
    }
}

#[test]
fn steps_that_lead_nowhere_and_links_that_are_not_there_are_refused_with_a_sentence() {
    for (keys, sentence) in [
        ("sample = 0", "sample = 0 is not a step of time"),
        ("sample = 'often'", "expected a step of time, as in \"10 us\", or \"auto\""),
        ("sample = '1 us'\nlinks = 'some'", "expected links"),
        ("sample = '1 us'\nlinks = [['host 0', 'host 1']]", "report: no link joins host 0 and host 1"),
    ] {
        let config = Config::parse(&format!("{CONGESTED}{keys}"));
        let refusal =
            config.map_err(|error| error.to_string()).and_then(|config| run(&config).map_err(|e| e.to_string()));
        let refusal = refusal.unwrap_err();
        assert!(refusal.contains(sentence) && !refusal.contains('\n'), "{keys}: {refusal}");
    }
}

fn replaced(file: &str, from: &str, to: &str) -> String {
    if from.is_empty() { file.to_string() } else { file.replace(from, to) }
}
