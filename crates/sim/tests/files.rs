//! Experiment files: what is read, what is refused, and how a run is reported.

use std::ops::ControlFlow;

use tributary_proto::contract::protocol::Placement;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::TreeReport;
use tributary_sim::sweep::Sweep;
use tributary_sim::table::{Format, Values};
use tributary_sim::{run, run_on_threads};

const SMALL: &str = r#"
[network]
leaf_spine = { leaves = 4, spines = 4, hosts_per_leaf = 4 }

[[job]]
protocol = "switchml"
hosts = "50 %"
tensor = "256 KiB"
trees = 2
iterations = 2

[[traffic]]
pattern = "uniform"
message = "64 KiB"
load = "50 %"
"#;

/// The sentence that a file is refused with, when it is read or when it is run.
fn refusal(text: &str) -> String {
    let sentence = match Config::parse(text) {
        Err(error) => error.to_string(),
        Ok(config) => run(&config).map(|_| "no error".to_string()).unwrap_or_else(|error| error.to_string()),
    };
    assert!(!sentence.contains('\n'), "one sentence: {sentence}");
    sentence
}

#[test]
fn a_small_file_runs_and_its_report_has_what_people_ask() {
    let report = run(&Config::parse(SMALL).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    let job = &report.jobs[0];
    assert_eq!((job.ranks, job.iterations.len(), job.trees.len()), (8, 2, 2));
    assert!(job.goodput_gbps.unwrap() > 10.0, "{report}");
    assert_eq!(job.in_network, Some(1.0));
    assert!(report.background.unwrap().received_gbps > 100.0, "{report}");
    assert!(report.switch_memory_bytes > 0);
    let text = report.to_string();
    for word in ["job 0: switchml on 8 ranks", "goodput", "background", "level 1 up", "trace", "packet-hops/s"] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn speed_is_in_hops_a_second_of_processor_time() {
    let config = Config::parse(SMALL).unwrap();
    for threads in [1, 2] {
        let report = run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap();
        let speed = report.speed;
        assert!(speed.processor_seconds > 0.0);
        assert_eq!((speed.hops_per_second * speed.processor_seconds).round(), report.hops as f64);
    }
}

/// Whatever a protocol counts in switches is in the text, the JSON and the tables, under its own names.
#[test]
fn what_a_protocol_counts_in_switches_is_reported_under_its_own_names() {
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.sums_in_network()) {
        let job = format!("protocol = \"{protocol}\"\nhosts = \"all\"\ntensor = \"100 kB\"\nname = \"train\"");
        let report =
            run(&Config::parse(&format!("[network]\nstar = {{ hosts = 4 }}\n[[job]]\n{job}")).unwrap()).unwrap();
        assert_eq!(report.failure(), None, "{report}");
        let (text, json) = (report.to_string(), serde_json::to_value(&report).unwrap());
        let table = report.tables().into_iter().find(|table| table.name == "switch_metrics").unwrap();
        let column = |name: &str| match &table.columns.iter().find(|column| column.name == name).unwrap().values {
            Values::Text(texts) => texts.clone(),
            other => panic!("{name} is {other:?}"),
        };
        let rows: Vec<(String, String)> = column("job").into_iter().zip(column("metric")).collect();
        assert!(column("protocol").iter().all(|name| name == protocol.name));
        for metric in &report.jobs[0].switch_metrics {
            assert!(rows.contains(&("train".into(), metric.name.into())), "{}: {rows:?}", metric.name);
        }
        assert_eq!(report.shared.is_empty(), protocol.shared.is_none());
        for metric in report.shared.iter().flat_map(|shared| &shared.metrics) {
            assert!(rows.contains(&(String::new(), metric.name.into())), "{}: {rows:?}", metric.name);
            let shown = format!("{} {}", metric.name.replace('_', " "), metric.value);
            assert_eq!(text.contains(&shown), metric.kind == "gauge" || metric.value > 0.0, "{shown} in\n{text}");
            let all = json["shared"][0]["metrics"].as_array().unwrap();
            assert!(all.iter().any(|one| one["name"] == metric.name && one["kind"] == metric.kind), "{all:?}");
        }
    }
}

#[test]
fn a_report_can_be_kept_as_files() {
    let directory = std::env::temp_dir().join(format!("tributary-sim-files-{}", std::process::id()));
    let report = run(&Config::parse(SMALL).unwrap()).unwrap();
    let read = |name: &str| std::fs::read(directory.join(name)).unwrap();
    for format in Format::ALL {
        report.write_files(&directory, format).unwrap();
    }
    let json: serde_json::Value = serde_json::from_slice(&read("report.json")).unwrap();
    assert_eq!(json["jobs"][0]["ranks"], 8);
    let links = 2 * (16 + 16);
    let rows = [("jobs", 1), ("collectives", 2), ("flows", 0), ("links", links), ("queues", links), ("samples", 0)];
    for (table, rows) in rows {
        let lines = read(&format!("{table}.csv")).iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(lines, 1 + rows, "{table}");
        assert!(read(&format!("{table}.parquet")).ends_with(b"PAR1"), "{table}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_program_that_wants_a_sweep_is_sent_to_it() {
    let error = Config::parse_json(r#"{"network": {"star": {"hosts": 4}}, "sweep": {"seeds": 2}}"#).unwrap_err();
    assert!(error.to_string().contains("`tributary.sim.sweep`"), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_and_what_was_there_stays() {
    let directory = std::env::temp_dir().join(format!("tributary-sim-kept-{}", std::process::id()));
    let report = run(&Config::parse(SMALL).unwrap()).unwrap();
    report.write_files(&directory, Format::Csv).unwrap();
    let before = std::fs::read(directory.join("links.csv")).unwrap();
    // No file can be made where a folder has its name.
    std::fs::create_dir(directory.join("links.csv.part")).unwrap();
    let error = report.write_files(&directory, Format::Csv).unwrap_err().to_string();
    assert!(error.starts_with("cannot write ") && error.contains("links.csv: "), "{error}");
    assert_eq!(std::fs::read(directory.join("links.csv")).unwrap(), before);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A protocol that has machines there.
fn with(placement: Placement) -> &'static str {
    protocols::ALL.iter().find(|protocol| protocol.placement == placement).unwrap().name
}

/// What a protocol has not is refused, even where the value is that of a file without the key.
#[test]
fn trees_are_for_protocols_that_have_them_planned() {
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.placement != Placement::Trees) {
        for (key, value) in [("trees", "1"), ("trees", "4"), ("roots", "[0]"), ("root_choice", "\"least_loaded\"")] {
            let name = protocol.name;
            let file = format!(
                "[network]\nstar = {{ hosts = 4 }}\n[[job]]\nprotocol = \"{name}\"\ntensor = 4\n{key} = {value}"
            );
            let sentence = format!("job 0: {name} has no trees that a file plans: leave {key} out; ");
            assert!(refusal(&file).starts_with(&sentence), "{}", refusal(&file));
        }
    }
}

#[test]
fn a_file_with_published_results_is_sent_to_its_program() {
    let text = "title = \"\"\nsource = \"\"\n[parameters]\nkind = \"goodput\"\n[[published]]\nkey = \"\"\n";
    for sentence in [refusal(text), Sweep::parse(text).unwrap_err().to_string()] {
        assert!(sentence.contains("is for `tributary reproduce ID`"), "{sentence}");
    }
}

/// Leaves are switches 0 to 3, spines 4 and 5.
#[test]
fn leaves_and_spines_have_names_wherever_a_node_is_named() {
    let protocol = with(Placement::Trees);
    let file = |root: &str, fault: &str| {
        let text = format!(
            "[network]\nleaf_spine = {{ leaves = 4, spines = 2, hosts_per_leaf = 2 }}\n[[job]]\n\
             protocol = \"{protocol}\"\ntensor = \"100 kB\"\nroots = [{root}]\n[[fault]]\nlinks = [[\"host 0\", \"{fault}\"]]\nloss = \"1 %\""
        );
        run(&Config::parse(&text).unwrap()).unwrap()
    };
    let (by_number, by_name) = (file("5", "switch 0"), file("\"spine 1\"", "leaf 0"));
    assert_eq!(by_number.trace_hash, by_name.trace_hash);
    assert_eq!(by_name.jobs[0].trees[0].root, "spine 1");
    for (root, sentence) in
        [("host 1", "host 1 is not a switch"), ("core 0", "\"core 0\" is not a node here: only the shape clos")]
    {
        let file = format!(
            "[network]\nleaf_spine = {{ leaves = 4, spines = 2, hosts_per_leaf = 2 }}\n[[job]]\n\
             protocol = \"{protocol}\"\ntensor = 4\nroots = [\"{root}\"]"
        );
        assert!(refusal(&file).starts_with(&format!("job 0: roots: {sentence}")), "{}", refusal(&file));
    }
    let clos = "[network]\nclos = { ports = 4 }\n[[fault]]\ndead = \"core 4\"";
    assert_eq!(refusal(clos), "fault 0: core 4 does not exist: there are 4 of them, from 0");
}

#[test]
fn roots_are_in_the_report_and_are_the_switches_that_sum_last() {
    let (trees, none) = (with(Placement::Trees), with(Placement::Hosts));
    let text = format!(
        "[network]\nleaf_spine = {{ leaves = 4, spines = 4, hosts_per_leaf = 4 }}\n[[job]]\nprotocol = \"{trees}\"\n\
         hosts = [0, 5, 9]\ntensor = \"100 kB\"\nroots = [6, 4]\n[[job]]\nprotocol = \"{trees}\"\n\
         hosts = [12, 13]\ntensor = \"100 kB\"\nroots = [5]\n[[job]]\nprotocol = \"{none}\"\nhosts = [1, 2]\n\
         tensor = \"100 kB\""
    );
    let report = run(&Config::parse(&text).unwrap()).unwrap();
    // The second job is on leaf 3 alone, which sums for it.
    let roots: Vec<String> = report.jobs.iter().map(|job| TreeReport::roots(&job.trees)).collect();
    assert_eq!(roots, ["spine 2, spine 0", "leaf 3", ""]);
    let mut edges = report.jobs[0].trees[1].edges.clone();
    edges.sort_unstable();
    let tree = [("host 0", "leaf 0"), ("host 5", "leaf 1"), ("host 9", "leaf 2")];
    let up = ["leaf 0", "leaf 1", "leaf 2"].map(|leaf| (leaf, "spine 0"));
    let named = |(child, parent): (&str, &str)| (child.to_owned(), parent.to_owned());
    assert_eq!(edges, tree.into_iter().chain(up).map(named).collect::<Vec<_>>());
    let said = report.to_string();
    for words in ["2 trees below spine 2, spine 0, ", "1 tree below leaf 3, ", "no switch sums, "] {
        assert!(said.contains(words), "{words} in\n{said}");
    }
    let mut csv = Vec::new();
    report.tables()[0].write(Format::Csv, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert!(csv.lines().nth(1).unwrap().contains(",2,\"spine 2, spine 0\",true,"), "{csv}");
}

#[test]
fn no_load_is_a_load() {
    let protocol = with(Placement::Trees);
    let file = |traffic: &str| {
        let text = format!(
            "[network]\nstar = {{ hosts = 8 }}\n[[job]]\nprotocol = \"{protocol}\"\nhosts = [0, 1, 2, 3]\n\
             tensor = \"100 kB\"\n{traffic}"
        );
        let report = run(&Config::parse(&text).unwrap()).unwrap();
        assert_eq!(report.failure(), None);
        report.trace_hash
    };
    let alone = file("");
    assert_eq!(file("[[traffic]]\npattern = \"uniform\"\nmessage = \"64 KiB\"\nload = 0"), alone);
    let poisson = "[[traffic]]\npattern = \"poisson\"\nsizes = \"hadoop\"\nuntil = \"1 ms\"\nload = ";
    assert_eq!(file(&format!("{poisson}\"0 %\"")), alone);
    assert_ne!(file(&format!("{poisson}\"20 %\"")), alone);
}

#[test]
fn a_wrong_file_is_refused_with_a_sentence() {
    let star = "[network]\nstar = { hosts = 4 }\n";
    let job = "[[job]]\nprotocol = \"switchml\"\ntensor = \"1 MiB\"\n";
    let with = |more: &str| format!("{star}{job}{more}");
    let cases = [
        (String::new(), "missing field `network`"),
        ("[network]".into(), "exactly one shape"),
        (format!("{star}leaf_spine = {{ leaves = 1, spines = 1, hosts_per_leaf = 1 }}"), "exactly one shape"),
        ("[network]\nstar = { hosts = 0 }".into(), "no hosts"),
        ("[network]\nstar = { hosts = 4000000000 }".into(), "more than this program takes"),
        (format!("{star}rat = \"1 Gbit/s\""), "line 3: unknown field `rat`, expected one of"),
        (format!("{star}rate = 100"), "has no unit"),
        (format!("{star}rate = \"1 bit/s\""), "is not the rate of a link"),
        (format!("{star}delay = \"11 s\""), "a link's delay of 11 s is longer than the whole run: end = 10 s"),
        (format!("{star}queue = -1"), "line 3: -1 is not a number of bytes"),
        (format!("{star}queue = 1.5"), "line 3: 1.5 is not a number of bytes"),
        (format!("{star}[[job]]\nprotocol = \"ring\"\ntensor = \"1000000 GiB\""), "more than 2^32 - 1 elements"),
        (with("type = \"f64\"\noptions = { numbers = \"fixed\" }"), "in fixed point: choose numbers=float"),
        (with("options = { windows = 3 }"), "switchml has no option \"windows\"; it has numbers"),
        (with("op = \"band\""), "switchml cannot do a band of"),
        (format!("{star}routing = \"fast\""), "unknown variant `fast`, expected one of `ecmp`"),
        (format!("{star}overhead = \"1 MB\""), "is too much framing"),
        ("[network]\nclos = { ports = 3 }".into(), "even number of ports"),
        ("[network]\nclos = { pods = 3 }".into(), "either ports, or pods"),
        (
            "[network]\ngraph = { hosts = 2, switches = 1, link = [{ between = [\"host 0\", \"switch 0\"] }] }".into(),
            "host 1 has no link",
        ),
        (
            "[network]\ngraph = { hosts = 1, switches = 1, link = [{ between = [\"host 0\", \"leaf 0\"] }] }".into(),
            "\"leaf 0\" is not a node here",
        ),
        (
            "[network]\ngraph = { hosts = 2, switches = 2, link = [{ between = [\"host 0\", \"switch 0\"] }, \
             { between = [\"host 1\", \"switch 1\"] }] }"
                .into(),
            "no path leads from host 0 to host 1",
        ),
        (with("[sweep]\nseeds = 2\n"), "this file has a [sweep]: run it with `tributary sim sweep FILE`"),
        (with("hosts = 5"), "job 0 wants 5 hosts, and 4 are free"),
        (with("hosts = \"some\""), "\"some\" names no hosts"),
        (with("hosts = [0, 9]"), "job 0 names host 9"),
        (with("slots = 0"), "slots must be a multiple of the trees, and not 0"),
        (with("slots = 7\ntrees = 2"), "slots must be a multiple"),
        (with("trees = 0"), "trees = 0"),
        (with("roots = [1]"), "job 0: roots: switch 1 does not exist: there are 1 switches, from 0"),
        (with("elements_per_packet = 0"), "1 to 16,000"),
        (with("iterations = 0"), "nothing to do"),
        (with("rto = { min = \"2 ms\", max = \"1 ms\" }"), "at most rto.max"),
        (with("op = \"mul\""), "\"mul\" is not an operator: there are sum, avg"),
        (format!("{star}[[job]]\nprotocol = \"smoke\"\ntensor = 4"), "\"smoke\" is not a protocol: there are switchml"),
        (
            format!("{star}[[job]]\nprotocol = \"switchml\"\ntensor = 7"),
            "is not a whole number of f32 elements, which have 4 bytes",
        ),
        (format!("{star}queue = \"20 kB\"\nlossless = {{}}"), "a queue needs"),
        (format!("{star}lossless = {{ xoff = 10, xon = 20 }}"), "xon = 20 B is more than xoff = 10 B"),
        (
            with("[[traffic]]\npattern = \"uniform\"\nmessage = 9999\nhosts = \"all\"\nexchange = true"),
            "over lossless links",
        ),
        (format!("{star}[transport]\npacket = 0"), "transport: packet = 0"),
        (format!("{star}[transport]\ninitial_window = 0"), "must be at least 1"),
        (format!("{star}[[fault]]\nat = \"1 us\""), "fault 0: it names neither links nor something dead"),
        (format!("{star}[[fault]]\nlinks = \"some\"\nloss = 0.1"), "expected links"),
        (format!("{star}[[fault]]\nlinks = \"all\"\nloss = 2"), "2 is not between 0 and 1"),
        (
            format!("{star}[[fault]]\nlinks = [[\"host 0\", \"host 1\"]]\ndown = true"),
            "no link joins host 0 and host 1",
        ),
        (format!("{star}[[fault]]\ndead = \"switch 3\""), "fault 0: switch 3 does not exist"),
    ];
    for (text, sentence) in cases {
        let refusal = refusal(&text);
        assert!(refusal.contains(sentence), "{text}\ngives: {refusal}");
    }
}

#[test]
fn marks_that_rise_end_no_lower_than_they_begin() {
    let file = |marks: &str| refusal(&format!("[network]\nstar = {{ hosts = 4 }}\n{marks}"));
    assert!(file("mark_all_above = \"10 kB\"").contains("mark_all_above is for queues with mark_above"));
    let sentence = file("mark_above = \"20 kB\"\ncore = { mark_all_above = \"10 kB\" }");
    assert!(sentence.contains("mark_all_above = 10 kB: it is at least mark_above, which is 20 kB"), "{sentence}");
}

const FLOWS: &str = r#"
[network]
leaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 4 }
rate = "10 Gbit/s"
mark_above = "98 kB"
routing = "random"

[transport]
rto = { initial = "5 ms", min = "5 ms", max = "100 ms" }

[[traffic]]
pattern = "poisson"
sizes = "web_search"
load = "60 %"
until = "20 ms"

[[traffic]]
pattern = "poisson"
hosts = "all"
message = "2 kB"
load = "1 %"
until = "10 ms"
"#;

#[test]
fn flows_that_arrive_at_random_are_reported_by_size() {
    let report = run(&Config::parse(FLOWS).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    let flows = report.transport.as_ref().unwrap();
    assert_eq!(flows.started, flows.finished);
    let names: Vec<&str> = flows.classes.iter().map(|class| class.name).collect();
    assert_eq!(names[..3], ["all", "up to 100 kB", "up to 10 MB"]);
    assert!(flows.classes[1].mean_seconds < flows.classes[2].mean_seconds, "{report}");
    // 8 hosts x 100 Mbit/s x 10 ms / 2 kB = 500 short flows.
    assert!((400..600).contains(&flows.classes[1].flows), "{report}");
    assert!(report.to_string().contains("flows under DCTCP"));
    assert_eq!(report.flow_rows.len(), flows.finished);
}

#[test]
fn flows_without_an_end_do_not_hold_up_a_run() {
    let job = "[[job]]\nprotocol = \"switchml\"\nhosts = 4\ntensor = \"1 MiB\"\n";
    let text = format!("{job}{}", FLOWS.replace("until = \"20 ms\"\n", "").replace("until = \"10 ms\"\n", ""));
    let report = run(&Config::parse(&text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    assert!(report.seconds < 0.1, "{report}");
}

#[test]
fn long_flows_run_beside_each_other() {
    let text = "[network]\nstar = { hosts = 4 }\nrate = \"10 Gbit/s\"\nmark_above = \"98 kB\"\n\
                [[traffic]]\npattern = \"permutation\"\ntransport = \"dctcp\"\nmessage = \"10 MB\"";
    let report = run(&Config::parse(text).unwrap()).unwrap();
    let class = &report.transport.as_ref().unwrap().classes[0];
    assert_eq!(class.flows, 4);
    let ideal = 10e6 / 1460.0 * 1538.0 * 8.0 / 10e9;
    assert!(class.p99_seconds < 1.06 * ideal, "each host's link carries acknowledgements too: {report}");
}

#[test]
fn what_was_read_can_be_written_and_read_again() {
    for text in [SMALL, FLOWS] {
        let config = Config::parse(text).unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(Config::parse(&text).unwrap(), config, "{text}");
    }
}
