//! Switches whose programs run on cores: what is in the file, and what comes out. That charging handlers by the table agrees with
//! running them is a test of `dataplanes/pspin`.

use std::ops::ControlFlow;

use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::experiment::{run, run_on_threads};
use tributary_sim::report::{CoresReport, CoresSample, Report};

/// Eight hosts round a switch; what the job and the cores are is to be filled in.
fn config(job: &str, cores: &str) -> Config {
    let text = format!(
        "end = \"1 s\"\n[network]\nstar = {{ hosts = 8 }}\nrate = \"100 Gbit/s\"\ndelay = \"500 ns\"\n{job}\n{cores}"
    );
    Config::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn job(rest: &str) -> String {
    format!("[[job]]\nhosts = \"all\"\n{rest}\n")
}

fn cores(rest: &str) -> String {
    format!("[switches.cores]\nclusters = 4\n{rest}\n")
}

fn ran(job_text: &str, cores_text: &str) -> Report {
    let report = run(&config(&job(job_text), &cores(cores_text))).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

fn only(report: &Report) -> &CoresReport {
    assert_eq!(report.cores.len(), 1);
    &report.cores[0]
}

fn of(cores: &CoresReport, kind: &str) -> f64 {
    cores.cycles.iter().find(|cycles| cycles.kind == kind).unwrap().cycles as f64
}

const INTEGERS: &str =
    "protocol = \"flare\"\ntensor = \"256 KiB\"\ntype = \"i32\"\nslots = 64\nelements_per_packet = 256";

#[test]
fn dense_packets_cost_what_their_handler_was_counted_to() {
    let report = ran(&format!("{INTEGERS}\noptions = {{ design = \"single\" }}"), "cold_misses = 0");
    let cores = only(&report);
    // 256 blocks of eight packets each: the first is copied at 2 cycles an element, seven are combined at 4, 76 begin each.
    assert_eq!(cores.packets, 256 * 8);
    assert_eq!(of(cores, "start"), 256.0 * 8.0 * 76.0);
    assert_eq!(of(cores, "copy"), 256.0 * 512.0);
    assert_eq!(of(cores, "combine"), 256.0 * 7.0 * 1024.0);
    assert_eq!(of(cores, "send"), 256.0 * 17.0);
    assert!(cores.lock_waiting_cycles > 0, "packets of a block come together");
    assert!(cores.queue_peak > 0 && cores.input_peak_bytes > 8 * 1024 && cores.working_peak_bytes >= 1024);
}

#[test]
fn a_switch_with_cores_takes_longer_and_sums_the_same() {
    let plain = run(&config(&job(INTEGERS), "")).unwrap();
    let with = ran(INTEGERS, "");
    assert_eq!(plain.failure(), None);
    assert!(with.jobs[0].seconds > plain.jobs[0].seconds, "{:?} {:?}", with.jobs[0].seconds, plain.jobs[0].seconds);
    assert!(plain.cores.is_empty());
}

#[test]
fn designs_differ_in_where_their_cycles_go() {
    let design = |design: &str| ran(&format!("{INTEGERS}\noptions = {{ design = \"{design}\" }}"), "");
    let (tree, multi) = (design("tree"), design("multi:4"));
    let (tree, multi) = (only(&tree), only(&multi));
    assert_eq!((tree.lock_waiting_cycles, of(tree, "combine")), (0, 0.0));
    // P - 1 merges of 56 cycles and 1,024 for each block of eight.
    assert_eq!(of(tree, "merge"), 256.0 * 7.0 * (56.0 + 1024.0));
    // At most three buffers are brought together.
    let merges = of(multi, "merge") / 256.0 / (28.0 + 1024.0);
    assert!(merges > 0.5 && merges <= 3.0, "{merges}");
}

/// Every protocol whose machines in switches count their work, and the sentence for each of the others.
#[test]
fn machines_that_count_run_on_cores_and_others_are_refused() {
    let (mut ran, mut refused) = (Vec::new(), Vec::new());
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.sums_in_network()) {
        let text = format!("protocol = \"{}\"\ntensor = \"128 KiB\"\nelements_per_packet = 256", protocol.name);
        match run(&config(&job(&text), &cores(""))) {
            Ok(report) => {
                assert_eq!(report.failure(), None, "{}", protocol.name);
                let cores = only(&report);
                assert!(cores.packets >= 8 * 128 && cores.service_cycles() > 8 * 128 * 500, "{cores:?}");
                ran.push(protocol);
            }
            Err(error) => {
                assert!(error.to_string().contains("do not count what they do"), "{}: {error}", protocol.name);
                refused.push(protocol.name);
            }
        }
    }
    assert!(ran.len() >= 3 && !refused.is_empty(), "{refused:?} were refused");
}

#[test]
fn a_full_packet_memory_loses_packets_and_the_job_recovers() {
    let job = format!("{INTEGERS}\nrto = {{ initial = \"100 us\", min = \"100 us\" }}");
    let report = ran(&job, "packet_memory = \"64 kB\"\nmark_above = \"32 kB\"");
    let cores = only(&report);
    assert!(cores.refused > 0 && cores.input_peak_bytes <= 64_000, "{cores:?}");
    let lost: u64 = report.link_rows.iter().map(|row| row.counters.losses.iter().sum::<u64>()).sum();
    assert_eq!(lost, cores.refused);
}

#[test]
fn pause_keeps_the_packet_memory_from_losing_anything() {
    let mut config = config(&job(INTEGERS), &cores("full = \"pause\""));
    config.network = Config::parse(
        "[network]\nstar = { hosts = 8 }\nqueue = \"128 KiB\"\nlossless = { xoff = \"16 KiB\", xon = \"8 KiB\" }\ndelay = \"500 ns\"",
    )
    .unwrap()
    .network;
    let report = run(&config).unwrap();
    assert_eq!(report.failure(), None);
    assert_eq!((only(&report).refused, report.lossless_drops), (0, Some(0)));
    assert!(report.link_rows.iter().any(|row| row.counters.pauses > 0), "somebody was paused");
}

#[test]
fn one_seed_has_one_trace_on_any_number_of_threads_with_cores_too() {
    let text = format!(
        "[report]\nsample = \"1 us\"\n[network]\nleaf_spine = {{ leaves = 4, spines = 2, hosts_per_leaf = 4 }}\n{}{}",
        job("protocol = \"flare\"\ntensor = \"64 KiB\"\ntype = \"i32\"\nslots = 64\noptions = { design = \"tree\" }"),
        cores("")
    );
    let config = Config::parse(&text).unwrap();
    let on = |threads| run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap();
    let one = on(1);
    assert_eq!(one.failure(), None);
    assert!(one.cores.len() >= 4, "leaves and a spine");
    for threads in [2, 4] {
        let other = on(threads);
        assert_eq!((&other.trace_hash, &other.cores), (&one.trace_hash, &one.cores), "{threads} threads");
        assert!(other.samples == one.samples, "{threads} threads: other samples");
    }
}

#[test]
fn what_cores_do_is_seen_over_time_and_adds_up() {
    let file = "[network]\nstar = { hosts = 4 }\n[[job]]\nprotocol = 'flare'\ntensor = '256 KiB'\ntype = 'i32'\n\
                options = { design = 'single' }\n[switches.cores]\nclusters = 1\n[report]\nsample = '1 us'\n";
    let seen = run(&Config::parse(file).unwrap()).unwrap();
    assert_eq!(seen.failure(), None);
    let (samples, cores) = (seen.samples.as_ref().unwrap(), &seen.cores[0]);
    assert_eq!(samples.cores_samples().count(), samples.switch_samples().count());
    // A step is 1,000 cycles. What happened since the last one is not seen.
    let seen_of = |value: &dyn Fn(&CoresSample) -> f64| samples.cores_samples().map(|one| value(&one)).sum::<f64>();
    let holds = |what: &str, seen: f64, all: u64| {
        assert!(seen <= all as f64 + 1.0 && seen > 0.95 * all as f64, "{what}: {seen} of {all}");
    };
    holds("waiting", 1e3 * seen_of(&|one| one.waiting_for_locks), cores.lock_waiting_cycles);
    for (index, kind) in cores.cycles.iter().enumerate() {
        if kind.cycles > 10_000 {
            holds(kind.kind, 1e3 * seen_of(&|one| one.in_step[index]), kind.cycles);
        }
    }
    let bits = 1e3 * seen_of(&|one| one.handled_gbps);
    assert!(bits > 8.0 * 4.0 * 256.0 * 1024.0, "{bits} bits were handled, headers included");
    let figures = seen.figures();
    let of = |title: &str| figures.iter().find(|figure| figure.title == title).unwrap_or_else(|| panic!("{title}"));
    assert_eq!(of("Packets that cores handle over time").series.len(), 1);
    let lines: Vec<&str> = of("What cores do over time").series.iter().map(|line| line.name.as_str()).collect();
    assert!(
        lines.contains(&"combine") && lines.contains(&"waiting for locks") && !lines.contains(&"scan"),
        "{lines:?}"
    );
}

#[test]
fn a_step_costs_two_events_at_most() {
    let plain = run(&config(&job(INTEGERS), "")).unwrap();
    let with = ran(INTEGERS, "");
    // Each packet is fetched, and its handler starts and combines; the last one of a block sends.
    let steps: u64 = 256 * (8 * 3 + 1);
    let more = with.speed.events.saturating_sub(plain.speed.events);
    println!("{more} events more for {steps} steps");
    assert!(more <= 2 * steps, "{more} events for {steps} steps");
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    let says = |job_text: &str, cores_text: &str| {
        let text = format!("[network]\nstar = {{ hosts = 4 }}\n{}[switches.cores]\n{cores_text}", job(job_text));
        match Config::parse(&text) {
            Err(error) => error.to_string(),
            Ok(config) => run(&config).expect_err(cores_text).to_string(),
        }
    };
    let flare = "protocol = \"flare\"\ntensor = \"64 KiB\"";
    for (job, cores, words) in [
        (flare, "clusters = 0", "clusters = 0: a processor has at least one"),
        (flare, "colour = 3", "colour"),
        (flare, "full = \"pause\"", "write lossless = {} under [network]"),
        (flare, "subset = \"all\"", "unknown variant `all`"),
        ("protocol = \"flare\"\ntype = \"bf16\"\ntensor = \"64 KiB\"", "", "there are no handlers for bf16"),
    ] {
        let said = says(job, cores);
        assert!(said.contains(words), "{cores}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
}
